#include "weights/gguf/gguf.h"

#include <gtest/gtest.h>

#include "weights/gguf/metadata.h"
#include "weights/tiny_models.h"

namespace deepinfer::weights {
namespace {

Result<GgufHead> parse(const std::string& file) {
  return parse_gguf(as_bytes(file), file.size(), "m.gguf");
}
Result<GgufHead> parse(const GgufBuilder& gguf) { return parse(gguf.build()); }

template <class T>
const T& held(const GgufHead& head, const char* key) {
  const auto found = head.metadata.find(key);
  check(found != head.metadata.end(), "the key is there");
  return std::get<T>(found->second);
}

TEST(Gguf, ReadsEveryTypeOfMetadata) {
  GgufBuilder gguf;
  gguf.value("u8", kU8, raw<uint8_t>(200)).value("i8", kI8, raw<int8_t>(-2));
  gguf.value("u16", kU16, raw<uint16_t>(60000)).value("i16", kI16, raw<int16_t>(-3));
  gguf.value("i32", kI32, raw<int32_t>(-4)).u32("u32", 4000000000);
  gguf.value("u64", kU64, raw<uint64_t>(~uint64_t{0})).value("i64", kI64, raw<int64_t>(-5));
  gguf.f32("f32", 0.5f).value("f64", kF64, raw(0.1)).flag("bool", true).text("text", "a\xff");
  gguf.array<uint8_t>("a8", kU8, {1, 255}).array<int32_t>("a32", kI32, {-1, 7});
  gguf.array<float>("af", kF32, {0.25f}).array<bool>("ab", kBool, {true, false});
  gguf.texts("at", {"x", ""}).texts("none", {});
  const GgufHead head = parse(gguf).value();
  EXPECT_EQ(held<uint64_t>(head, "u8"), 200u);
  EXPECT_EQ(held<int64_t>(head, "i8"), -2);
  EXPECT_EQ(held<uint64_t>(head, "u16"), 60000u);
  EXPECT_EQ(held<int64_t>(head, "i16"), -3);
  EXPECT_EQ(held<uint64_t>(head, "u32"), 4000000000u);
  EXPECT_EQ(held<int64_t>(head, "i32"), -4);
  EXPECT_EQ(held<uint64_t>(head, "u64"), ~uint64_t{0});
  EXPECT_EQ(held<int64_t>(head, "i64"), -5);
  EXPECT_EQ(held<double>(head, "f32"), 0.5);
  EXPECT_EQ(held<double>(head, "f64"), 0.1);
  EXPECT_TRUE(held<bool>(head, "bool"));
  EXPECT_EQ(held<std::string>(head, "text"), "a\xff");
  EXPECT_EQ(held<std::vector<int64_t>>(head, "a8"), (std::vector<int64_t>{1, 255}));
  EXPECT_EQ(held<std::vector<int64_t>>(head, "a32"), (std::vector<int64_t>{-1, 7}));
  EXPECT_EQ(held<std::vector<double>>(head, "af"), (std::vector<double>{0.25}));
  EXPECT_EQ(held<std::vector<bool>>(head, "ab"), (std::vector<bool>{true, false}));
  EXPECT_EQ(held<std::vector<std::string>>(head, "at"), (std::vector<std::string>{"x", ""}));
  EXPECT_TRUE(held<std::vector<std::string>>(head, "none").empty());
}

TEST(Gguf, ReadsTensorsOfVersions2And3WithTheShapeTurned) {
  for (const uint32_t version : {2u, 3u}) {
    GgufBuilder gguf;
    gguf.version = version;
    gguf.tensor({"w", DType::q4_0, {3, 64}}).tensor({"blk.0.x_exps", DType::mxfp4, {2, 3, 32}});
    const std::string file = gguf.build();
    const GgufHead head = parse(file).value();
    EXPECT_EQ(head.version, version);
    ASSERT_EQ(head.tensors.size(), 2u);
    EXPECT_EQ(head.tensors[0].shape, Shape({3, 64}));
    EXPECT_EQ(head.tensors[0].bytes, 3u * 2 * 18);
    EXPECT_EQ(head.tensors[0].begin % 32, 0u);
    EXPECT_EQ(head.tensors[1].dtype, DType::mxfp4);
    EXPECT_EQ(head.tensors[1].shape, Shape({2, 3, 32}));
    EXPECT_EQ(head.tensors[1].begin, head.tensors[0].begin + 128);
  }
}

TEST(Gguf, HonoursTheAlignment) {
  GgufBuilder gguf;
  gguf.alignment = 64;
  gguf.u32("general.alignment", 64).tensor({"a", DType::f32, {1}}).tensor({"b", DType::f32, {1}});
  const GgufHead head = parse(gguf).value();
  EXPECT_EQ(head.tensors[0].begin % 64, 0u);
  EXPECT_EQ(head.tensors[1].begin, head.tensors[0].begin + 64);
  for (const uint32_t wrong : {0u, 1u, 12u, 131072u}) {
    expect_error(parse(GgufBuilder().u32("general.alignment", wrong)), "corrupt",
                 {"general.alignment is " + std::to_string(wrong), "power of two"});
  }
  expect_error(parse(GgufBuilder().text("general.alignment", "32")), "corrupt", {"alignment"});
}

TEST(Gguf, NamesOtherVersionsAndByteOrder) {
  GgufBuilder gguf;
  gguf.version = 1;
  expect_error(parse(gguf), "unsupported", {"version 1", "2 and 3"});
  gguf.version = 4;
  expect_error(parse(gguf), "unsupported", {"version 4"});
  gguf.version = 0x03000000;
  expect_error(parse(gguf), "unsupported", {"big-endian", "version 3"});
  expect_error(parse("PK\3\4 a zip file with more bytes"), "corrupt", {"\"PK\\x03\\x04\""});
  expect_error(parse(""), "corrupt", {"magic"});
}

TEST(Gguf, RefusesEveryTruncation) {
  GgufBuilder gguf;
  gguf.text("general.name", "x").texts("list", {"a", "b"}).array<float>("f", kF32, {1, 2});
  gguf.tensor({"a", DType::f32, {2, 4}}).tensor({"b", DType::f32, {3, 8}});
  const std::string file = gguf.build();
  ASSERT_TRUE(parse(file).ok());
  for (size_t size = 0; size < file.size(); ++size) {
    // An allocation of that size, so that a read past it is seen by the sanitizer.
    const std::vector<char> cut(file.begin(), file.begin() + static_cast<ptrdiff_t>(size));
    const auto bytes = std::as_bytes(std::span(cut));
    EXPECT_FALSE(parse_gguf(bytes, size, "m.gguf").ok()) << size;
  }
}

TEST(Gguf, ChecksCountsAgainstTheFileBeforeAllocating) {
  GgufBuilder gguf;
  gguf.extra_tensors = uint64_t{1} << 60;
  expect_error(parse(gguf), "corrupt", {"1152921504606846976 tensors", "bytes are left"});
  gguf.extra_tensors = 0;
  gguf.extra_metadata = ~uint64_t{0};
  expect_error(parse(gguf), "corrupt", {"18446744073709551615 metadata entries"});
  const std::string huge = raw<uint32_t>(kU8) + raw<uint64_t>(uint64_t{1} << 63);
  expect_error(parse(GgufBuilder().value("k", kArray, huge)), "corrupt",
               {"metadata k", "9223372036854775808 u8", "bytes are left"});
  expect_error(parse(GgufBuilder().value("k", kString, raw<uint64_t>(~uint64_t{0}))), "corrupt",
               {"metadata k", "18446744073709551615"});
}

TEST(Gguf, RefusesArraysBeyondTheLimit) {
  const std::string bytes = raw<uint32_t>(kU8) + raw<uint64_t>(kGgufArrayLimit + 1) +
                            std::string(kGgufArrayLimit + 1, '\0');
  expect_error(parse(GgufBuilder().value("k", kArray, bytes)), "exhausted",
               {"metadata k", "16777217", "16777216"});
}

TEST(Gguf, RefusesBrokenMetadata) {
  expect_error(parse(GgufBuilder().u32("k", 1).u32("k", 1)), "corrupt", {"metadata k", "twice"});
  expect_error(parse(GgufBuilder().u32("", 1)), "corrupt", {"key 0 is empty"});
  expect_error(parse(GgufBuilder().value("k", 13, raw<uint64_t>(0))), "corrupt", {"type 13", "12"});
  expect_error(parse(GgufBuilder().value("k", kBool, raw<uint8_t>(2))), "corrupt",
               {"metadata k is 2"});
  expect_error(parse(GgufBuilder().array<uint64_t>("k", kU64, {~uint64_t{0}})), "unsupported",
               {"metadata k", "18446744073709551615"});
  const std::string nested = raw<uint32_t>(kArray) + raw<uint64_t>(0);
  expect_error(parse(GgufBuilder().value("k", kArray, nested)), "unsupported", {"array of arrays"});
  expect_error(parse(GgufBuilder().u32(std::string(kGgufKeyLimit + 1, 'k'), 1)), "exhausted",
               {"65536", "65535"});
  expect_error(parse(GgufBuilder().value("\x1b[2J", 99, raw<uint64_t>(0))), "corrupt",
               {"\\x1b[2J"});
}

TEST(Gguf, RefusesBrokenTensorTables) {
  const auto one = [](const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    return parse(GgufBuilder().line("t", dims, type, offset).data(64));
  };
  ASSERT_TRUE(one({16}, 0, 0).ok());
  expect_error(one({17}, 0, 0), "corrupt",
               {"m.gguf: tensor t", "68 bytes at offset 0", "64 bytes"});
  expect_error(one({8}, 0, 64), "corrupt", {"offset 64", "64 bytes"});
  expect_error(one({1}, 0, uint64_t{0} - 32), "corrupt", {"18446744073709551584"});
  expect_error(one({4}, 0, 4), "corrupt", {"offset 4", "alignment 32"});
  expect_error(one({33}, 2, 0), "corrupt", {"rows of 33", "Q4_0", "blocks of 32"});
  expect_error(one({1, 1, 1, 1, 1}, 0, 0), "unsupported", {"rank 5", "limit is 4"});
  expect_error(one({uint64_t{1} << 40, uint64_t{1} << 40}, 0, 0), "corrupt", {"tensor t"});
  expect_error(one({uint64_t{1} << 62}, 0, 0), "corrupt", {"tensor t", "63 bits"});
  expect_error(one({256}, 19, 0), "unsupported", {"tensor t", "IQ1_S", "type 19"});
  expect_error(one({256}, 29, 0), "unsupported", {"tensor t", "IQ1_M"});
  expect_error(one({256}, 4, 0), "unsupported", {"tensor t", "unknown type number 4"});
  expect_error(parse(GgufBuilder().line("", {1}, 0, 0)), "corrupt", {"name of tensor 0 is empty"});
  expect_error(parse(GgufBuilder().line(std::string(257, 'n'), {1}, 0, 0).data(64)), "exhausted",
               {"257", "256"});
  GgufBuilder overlap;
  overlap.line("a", {16}, 0, 0).line("b", {8}, 0, 32).data(64);
  expect_error(parse(overlap), "corrupt", {"tensor b", "overlap tensor a"});
  GgufBuilder twice;
  twice.line("a", {8}, 0, 0).line("a", {8}, 0, 32).data(64);
  expect_error(parse(twice), "corrupt", {"tensor a", "twice"});
  expect_error(parse(GgufBuilder().line("t", {16}, 0, 0).head()), "corrupt", {"0 bytes of data"});
}

TEST(Gguf, KnowsEveryTypeThatIsReadable) {
  const uint32_t readable[] = {0,  1,  2,  3,  6,  7,  8,  10, 11, 12, 13, 14, 16, 17,
                               18, 20, 21, 22, 23, 24, 25, 26, 27, 28, 30, 39, 40};
  for (const uint32_t type : readable) {
    const Result<GgufHead> head = parse(GgufBuilder().line("t", {256}, type, 0).data(4096));
    EXPECT_TRUE(head.ok()) << type << ": " << head.error().text();
  }
}

TEST(Metadata, NamesKeyValueAndWhatWasExpected) {
  const GgufHead head =
      parse(GgufBuilder().u32("n", 7).text("t", "x").f32("e", 1e-5f).texts("l", {"a"})).value();
  const MetadataReader reader(head.metadata, "m.gguf");
  EXPECT_EQ(reader.integer("n", 1, 7).value(), 7u);
  expect_error(reader.integer("n", 1, 6), "corrupt", {"m.gguf: metadata n: is 7", "1 to 6"});
  expect_error(reader.integer("t", 0, 9), "corrupt", {"metadata t: is \"x\""});
  expect_error(reader.integer("no", 0, 9), "corrupt", {"metadata no: is missing"});
  expect_error(reader.text("l"), "corrupt", {"an array of 1 strings", "a string"});
  EXPECT_EQ(reader.number("e").value(), 1e-5);
  EXPECT_EQ(reader.integer_or("no", 0, 9, 3).value(), 3u);
}

}  // namespace
}  // namespace deepinfer::weights
