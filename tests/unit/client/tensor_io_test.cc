#include "client/cpp/tensor_io.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace ridgeline::client {
namespace {

using support::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TensorIoTest, ArraysTravelWithoutACopy) {
  std::string bytes(64, 'x');
  const char* const where = bytes.data();
  ASSERT_OK_AND_ASSIGN(v1::Tensor tensor, ToTensor({ElementType::kFloat32, {4, 4}, std::move(bytes)}));
  EXPECT_EQ(tensor.data_type(), v1::DATA_TYPE_FLOAT32);
  EXPECT_THAT(tensor.shape(), ElementsAre(4, 4));
  ASSERT_OK_AND_ASSIGN(const Array array, FromTensor(std::move(tensor)));
  EXPECT_THAT(array.shape, ElementsAre(4, 4));
  EXPECT_EQ(array.bytes.data(), where);
}

TEST(TensorIoTest, DoublesHaveNoPlaceOnTheWire) {
  EXPECT_THAT(ToTensor({ElementType::kFloat64, {1}, std::string(8, '\0')}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("float64")));
}

TEST(TensorIoTest, AnswersThatAreNotWholeAreTheServersFault) {
  v1::Tensor tensor;
  EXPECT_THAT(FromTensor(tensor), StatusIs(absl::StatusCode::kInternal, HasSubstr("DATA_TYPE_UNSPECIFIED")));
  tensor.set_data_type(v1::DATA_TYPE_BFLOAT16);
  tensor.add_shape(3);
  tensor.set_inline_data("12345");
  EXPECT_THAT(FromTensor(tensor), StatusIs(absl::StatusCode::kInternal, HasSubstr("5 bytes")));
  tensor.set_shape(0, -1);
  EXPECT_THAT(FromTensor(tensor), StatusIs(absl::StatusCode::kInternal));
}

TEST(TensorIoTest, RandomTensorsCarryNoData) {
  const v1::Tensor tensor = RandomTensor(v1::DATA_TYPE_FLOAT16, {2, 8}, 7);
  EXPECT_EQ(tensor.random().seed(), 7);
  EXPECT_FALSE(tensor.random().has_standard_deviation());
  EXPECT_THAT(tensor.shape(), ElementsAre(2, 8));
}

}  // namespace
}  // namespace ridgeline::client
