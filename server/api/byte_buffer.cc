#include "server/api/byte_buffer.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/support/slice.h"
#include "ridgeline/v1/attention.pb.h"
#include "server/api/attend_converter.h"
#include "server/base/check.h"

namespace ridgeline::api {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedOutputStream;

// The largest fragment header: two tags and two lengths.
constexpr std::size_t kMaxHeaderBytes = 20;

using SharedResult = std::shared_ptr<const device::HostBuffer>;

std::int64_t PayloadBytes(const std::optional<engine::OutputTensor>& tensor) {
  return tensor.has_value() && tensor->data != nullptr ? tensor->data->size_bytes() : 0;
}

// What comes before the tensor's bytes: the field in AttendResponse, then inline_data in Tensor.
grpc::Slice FragmentHeader(int response_field, std::uint32_t payload_bytes) {
  const std::uint32_t data_tag =
      WireFormatLite::MakeTag(v1::Tensor::kInlineDataFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  const std::uint32_t response_tag = WireFormatLite::MakeTag(response_field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  const std::size_t nested_header = CodedOutputStream::VarintSize32(data_tag) + CodedOutputStream::VarintSize32(payload_bytes);
  std::uint8_t header[kMaxHeaderBytes];
  std::uint8_t* end = CodedOutputStream::WriteVarint32ToArray(response_tag, header);
  end = CodedOutputStream::WriteVarint32ToArray(static_cast<std::uint32_t>(nested_header + payload_bytes), end);
  end = CodedOutputStream::WriteVarint32ToArray(data_tag, end);
  end = CodedOutputStream::WriteVarint32ToArray(payload_bytes, end);
  return grpc::Slice(header, static_cast<std::size_t>(end - header));
}

// A slice over memory that lives as long as the slice does.
grpc::Slice Share(const SharedResult& result) {
  return grpc::Slice(
      const_cast<void*>(result->data()), static_cast<std::size_t>(result->size_bytes()),
      [](void* keeper) { delete static_cast<SharedResult*>(keeper); }, new SharedResult(result));
}

void AppendFragment(int response_field, const std::optional<engine::OutputTensor>& tensor, std::vector<grpc::Slice>& slices) {
  if (!tensor.has_value()) return;
  const std::int64_t payload_bytes = PayloadBytes(tensor);
  slices.push_back(FragmentHeader(response_field, static_cast<std::uint32_t>(payload_bytes)));
  if (payload_bytes > 0) slices.push_back(Share(tensor->data));
}

}  // namespace

WireView TakeView(grpc::ByteBuffer& buffer) {
  auto slices = std::make_shared<std::vector<grpc::Slice>>();
  WireView view;
  if (!buffer.Dump(slices.get()).ok()) return view;  // an empty buffer; as a message it has all defaults
  view.slices.reserve(slices->size());
  for (const grpc::Slice& slice : *slices) view.slices.push_back({slice.begin(), static_cast<std::int64_t>(slice.size())});
  view.owner = std::move(slices);
  buffer.Clear();
  return view;
}

grpc::ByteBuffer Serialize(const engine::AttendResult& result) {
  const std::string message = ToMessage(result).SerializeAsString();
  const std::int64_t total_bytes = static_cast<std::int64_t>(message.size() + 2 * kMaxHeaderBytes) +
                                   PayloadBytes(result.output) + PayloadBytes(result.log_sum_exp);
  RIDGELINE_CHECK(total_bytes <= kMaxMessageBytes);  // the engine was told kMaxAnswerTensorBytes
  std::vector<grpc::Slice> slices;
  slices.emplace_back(message);
  AppendFragment(v1::AttendResponse::kOutputFieldNumber, result.output, slices);
  AppendFragment(v1::AttendResponse::kLogSumExpFieldNumber, result.log_sum_exp, slices);
  return grpc::ByteBuffer(slices.data(), slices.size());
}

}  // namespace ridgeline::api
