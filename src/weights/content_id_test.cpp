#include "weights/content_id.h"

#include <gtest/gtest.h>

#include "weights/tiny_models.h"

namespace deepinfer::weights {
namespace {

std::string id_of(const TempFolder& folder, const std::vector<TinyTensor>& tensors) {
  folder.write("config.json", "{}");
  folder.write("model.safetensors", safetensors_file(tensors));
  return content_id(Checkpoint::open(folder.path()).value()).value();
}

TEST(ContentId, DependsOnNameDtypeShapeAndData) {
  const TempFolder folder;
  const std::string id = id_of(folder, {{"a", DType::f32, {2, 4}, 1}});
  EXPECT_EQ(id.size(), 32u);
  EXPECT_EQ(id, id_of(folder, {{"a", DType::f32, {2, 4}, 1}}));
  EXPECT_NE(id, id_of(folder, {{"b", DType::f32, {2, 4}, 1}}));
  EXPECT_NE(id, id_of(folder, {{"a", DType::i32, {2, 4}, 1}}));
  EXPECT_NE(id, id_of(folder, {{"a", DType::f32, {4, 2}, 1}}));
  EXPECT_NE(id, id_of(folder, {{"a", DType::f32, {2, 4}, 2}}));
  EXPECT_NE(id_of(folder, {}), id);
}

TEST(ContentId, SeesChangesAtTheEndsOfLargeTensorsAndNotTheOrderInTheFile) {
  const TempFolder folder;
  const std::vector<TinyTensor> tensors = {{"a", DType::u8, {100000}, 1},
                                           {"b", DType::u8, {600}, 2}};
  const std::string id = id_of(folder, tensors);
  EXPECT_EQ(id, id_of(folder, {tensors[1], tensors[0]}));
  for (const size_t from_end : {size_t{1}, size_t{99990}}) {
    std::string file = safetensors_file({tensors[1], tensors[0]});
    file[file.size() - from_end] = 9;
    folder.write("model.safetensors", file);
    EXPECT_NE(content_id(Checkpoint::open(folder.path()).value()).value(), id) << from_end;
  }
}

}  // namespace
}  // namespace deepinfer::weights
