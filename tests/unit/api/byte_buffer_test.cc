#include "server/api/byte_buffer.h"

#include <memory>
#include <string>
#include <vector>

#include "grpcpp/support/slice.h"
#include "gtest/gtest.h"
#include "ridgeline/v1/attention.pb.h"
#include "ridgeline/v1/fused.pb.h"

namespace ridgeline::api {
namespace {

using kernels::DataType;

class StringBuffer : public device::HostBuffer {
 public:
  explicit StringBuffer(std::string bytes) : bytes_(std::move(bytes)) {}
  const void* data() const override { return bytes_.data(); }
  std::int64_t size_bytes() const override { return static_cast<std::int64_t>(bytes_.size()); }

 private:
  const std::string bytes_;
};

std::string Flatten(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

v1::AttendResponse Parse(const grpc::ByteBuffer& buffer) {
  v1::AttendResponse response;
  EXPECT_TRUE(response.ParseFromString(Flatten(buffer)));
  return response;
}

TEST(SerializeTest, AnyParserReadsTheAnswer) {
  // Sizes around the borders of a length's own length.
  for (const std::size_t size : {0u, 1u, 120u, 127u, 128u, 16383u, 16384u, 3000000u}) {
    engine::AttendResult result;
    result.output = {DataType::kBFloat16, {1, 2}, std::make_shared<StringBuffer>(std::string(size, 'x'))};
    result.log_sum_exp = {DataType::kFloat32, {3}, std::make_shared<StringBuffer>("lse")};
    result.report.kernel = "kernel";
    result.report.kernel_time = absl::Nanoseconds(1'500'000'000);
    const grpc::ByteBuffer buffer = Serialize(result);
    const v1::AttendResponse response = Parse(buffer);
    EXPECT_EQ(response.output().data_type(), v1::DATA_TYPE_BFLOAT16);
    EXPECT_EQ(response.output().shape_size(), 2);
    EXPECT_EQ(response.output().inline_data(), std::string(size, 'x'));
    EXPECT_EQ(response.log_sum_exp().inline_data(), "lse");
    EXPECT_EQ(response.report().kernel(), "kernel");
    EXPECT_EQ(response.report().kernel_time().seconds(), 1);
    EXPECT_EQ(response.report().kernel_time().nanos(), 500'000'000);
  }
}

TEST(SerializeTest, AnEmptyTensorHasStorage) {
  engine::AttendResult result;
  result.output = {DataType::kFloat32, {0, 8}, nullptr};
  const grpc::ByteBuffer buffer = Serialize(result);
  EXPECT_TRUE(Parse(buffer).output().has_inline_data());
}

TEST(SerializeTest, WhatWasDiscardedIsAbsent) {
  const grpc::ByteBuffer buffer = Serialize(engine::AttendResult());
  EXPECT_FALSE(Parse(buffer).has_output());
  EXPECT_FALSE(Parse(buffer).has_log_sum_exp());
  EXPECT_TRUE(Parse(buffer).has_report());
}

TEST(SerializeTest, TheAnswerSharesAndKeepsTheResult) {
  auto data = std::make_shared<StringBuffer>(std::string(100'000, 'x'));
  const std::weak_ptr<StringBuffer> watched = data;
  {
    grpc::ByteBuffer buffer;
    {
      engine::AttendResult result;
      result.output = {DataType::kFloat32, {25'000}, data};
      buffer = Serialize(result);
    }
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(buffer.Dump(&slices).ok());
    bool shared = false;
    for (const grpc::Slice& slice : slices) shared |= slice.begin() == data->data();
    EXPECT_TRUE(shared) << "no slice is the result's own memory";
    data.reset();
    EXPECT_FALSE(watched.expired());
  }
  EXPECT_TRUE(watched.expired());
}

TEST(SerializeTest, AnyParserReadsEveryOutput) {
  for (const std::size_t size : {0u, 1u, 116u, 127u, 128u, 16383u, 3000000u}) {
    engine::FuseResult result;
    result.outputs = {{DataType::kBFloat16, {1, 2}, std::make_shared<StringBuffer>(std::string(size, 'x'))},
                      {DataType::kFloat16, {0, 8}, nullptr},
                      {DataType::kUint8, {3}, std::make_shared<StringBuffer>("abc")}};
    result.report.kernel = "kernel";
    result.kernel_count = 7;
    result.lengths = {5, 0};
    v1::FuseResponse response;
    ASSERT_TRUE(response.ParseFromString(Flatten(Serialize(result))));
    ASSERT_EQ(response.outputs_size(), 3);
    EXPECT_EQ(response.outputs(0).data_type(), v1::DATA_TYPE_BFLOAT16);
    EXPECT_EQ(response.outputs(0).inline_data(), std::string(size, 'x'));
    EXPECT_EQ(response.outputs(1).shape_size(), 2);
    EXPECT_TRUE(response.outputs(1).has_inline_data());
    EXPECT_EQ(response.outputs(2).data_type(), v1::DATA_TYPE_UINT8);
    EXPECT_EQ(response.outputs(2).inline_data(), "abc");
    EXPECT_EQ(response.report().kernel(), "kernel");
    EXPECT_EQ(response.report().algorithm(), v1::ALGORITHM_UNSPECIFIED);
    EXPECT_EQ(response.kernel_count(), 7);
    EXPECT_EQ(response.lengths_size(), 2);
  }
}

TEST(TakeViewTest, TheViewAloneKeepsTheBytes) {
  bool freed = false;
  const std::string text = "first ";
  grpc::ByteBuffer buffer;
  {
    const grpc::Slice slices[] = {
        grpc::Slice(
            const_cast<char*>(text.data()), text.size(), [](void* flag) { *static_cast<bool*>(flag) = true; }, &freed),
        grpc::Slice("second")};
    buffer = grpc::ByteBuffer(slices, 2);
  }
  WireView view = TakeView(buffer);
  std::string bytes;
  for (const device::HostSlice& slice : view.slices) bytes.append(static_cast<const char*>(slice.data), slice.size_bytes);
  EXPECT_EQ(bytes, "first second");
  EXPECT_FALSE(freed);
  view.owner.reset();
  EXPECT_TRUE(freed) << "the buffer, which still lives, kept them";
}

TEST(TakeViewTest, AnEmptyMessageHasNoPieces) {
  grpc::ByteBuffer buffer;
  EXPECT_TRUE(TakeView(buffer).slices.empty());
}

}  // namespace
}  // namespace ridgeline::api
