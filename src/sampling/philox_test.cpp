#include "sampling/philox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deepinfer::sampling {
namespace {

using ::testing::ElementsAre;

// The known answers that the authors publish with Random123.
TEST(Philox, KnownAnswers) {
  EXPECT_THAT(philox4x32(0, 0, 0), ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(philox4x32(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(philox4x32(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(Uniform, IsAFunctionOfSeedAndPositionInTheUnitInterval) {
  double sum = 0;
  for (uint64_t position = 0; position < 10000; ++position) {
    const double u = uniform(11, position);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ASSERT_EQ(u, uniform(11, position));
    sum += u;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.01);  // fixed seed: a fixed number
  EXPECT_NE(uniform(11, 0), uniform(12, 0));
  EXPECT_NE(uniform(11, 0), uniform(11, 1));
}

}  // namespace
}  // namespace deepinfer::sampling
