#include "server/api/byte_buffer.h"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/support/slice.h"
#include "ridgeline/v1/attention.pb.h"
#include "ridgeline/v1/fused.pb.h"
#include "server/api/attend_converter.h"
#include "server/api/fuse_converter.h"
#include "server/api/tensor_converter.h"
#include "server/api/wire_reader.h"
#include "server/base/check.h"
#include "server/base/status_macros.h"

namespace ridgeline::api {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedOutputStream;

// The largest fragment header: a tag and a length, for each of at most three fields.
constexpr std::size_t kMaxHeaderBytes = 30;

using SharedResult = std::shared_ptr<const device::HostBuffer>;

std::int64_t PayloadBytes(const engine::OutputTensor& tensor) { return tensor.data != nullptr ? tensor.data->size_bytes() : 0; }

std::int64_t PayloadBytes(const std::optional<engine::OutputTensor>& tensor) {
  return tensor.has_value() ? PayloadBytes(*tensor) : 0;
}

// Of a field that has a length.
std::uint32_t TagOf(int field) { return WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED); }

// What comes before a tensor's bytes: the fields that lead to the tensor from the message, outermost first, then its
// inline_data.
grpc::Slice FragmentHeader(std::initializer_list<int> path, std::uint32_t payload_bytes) {
  std::vector<int> fields(path);
  fields.push_back(v1::Tensor::kInlineDataFieldNumber);
  std::vector<std::uint32_t> lengths(fields.size(), payload_bytes);  // of each field's content
  for (std::size_t i = fields.size() - 1; i > 0; --i) {
    lengths[i - 1] = static_cast<std::uint32_t>(CodedOutputStream::VarintSize32(TagOf(fields[i])) +
                                                CodedOutputStream::VarintSize32(lengths[i]) + lengths[i]);
  }
  std::uint8_t header[kMaxHeaderBytes];
  std::uint8_t* end = header;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    end = CodedOutputStream::WriteVarint32ToArray(TagOf(fields[i]), end);
    end = CodedOutputStream::WriteVarint32ToArray(lengths[i], end);
  }
  return grpc::Slice(header, static_cast<std::size_t>(end - header));
}

// A slice over memory that lives as long as the slice does.
grpc::Slice Share(const SharedResult& result) {
  return grpc::Slice(
      const_cast<void*>(result->data()), static_cast<std::size_t>(result->size_bytes()),
      [](void* keeper) { delete static_cast<SharedResult*>(keeper); }, new SharedResult(result));
}

void AppendFragment(std::initializer_list<int> path, const engine::OutputTensor& tensor, std::vector<grpc::Slice>& slices) {
  const std::int64_t payload_bytes = PayloadBytes(tensor);
  slices.push_back(FragmentHeader(path, static_cast<std::uint32_t>(payload_bytes)));
  if (payload_bytes > 0) slices.push_back(Share(tensor.data));
}

void AppendVarint(std::uint32_t value, std::string& out) {
  std::uint8_t bytes[kMaxHeaderBytes];
  const std::uint8_t* const end = CodedOutputStream::WriteVarint32ToArray(value, bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(end - bytes));
}

// An element of a repeated field of tensors.
void AppendElement(int field, const engine::OutputTensor& tensor, std::vector<grpc::Slice>& slices) {
  v1::Tensor described;
  Convert(tensor, described);
  const auto payload_bytes = static_cast<std::uint32_t>(PayloadBytes(tensor));
  std::string content = described.SerializeAsString();  // all but the payload
  AppendVarint(TagOf(v1::Tensor::kInlineDataFieldNumber), content);
  AppendVarint(payload_bytes, content);
  std::string header;
  AppendVarint(TagOf(field), header);
  AppendVarint(static_cast<std::uint32_t>(content.size()) + payload_bytes, header);
  slices.emplace_back(header + content);
  if (payload_bytes > 0) slices.push_back(Share(tensor.data));
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

absl::Status Parse(grpc::ByteBuffer& buffer, google::protobuf::Message& message) {
  const WireView wire = TakeView(buffer);
  RIDGELINE_ASSIGN_OR_RETURN(const SplitMessage split, Split(*message.GetDescriptor(), wire.slices));
  return ParseSkeleton(split, message);
}

grpc::ByteBuffer Serialize(const engine::AttendResult& result) {
  const std::string message = ToMessage(result).SerializeAsString();
  const std::int64_t total_bytes = static_cast<std::int64_t>(message.size() + 2 * kMaxHeaderBytes) +
                                   PayloadBytes(result.output) + PayloadBytes(result.log_sum_exp);
  RIDGELINE_CHECK(total_bytes <= kMaxMessageBytes);  // the engine was told kMaxAnswerTensorBytes
  std::vector<grpc::Slice> slices;
  slices.emplace_back(message);
  if (result.output.has_value()) AppendFragment({v1::AttendResponse::kOutputFieldNumber}, *result.output, slices);
  if (result.log_sum_exp.has_value()) AppendFragment({v1::AttendResponse::kLogSumExpFieldNumber}, *result.log_sum_exp, slices);
  return grpc::ByteBuffer(slices.data(), slices.size());
}

grpc::ByteBuffer Serialize(const engine::FuseResult& result) {
  std::vector<grpc::Slice> slices;
  slices.emplace_back(ToMessage(result).SerializeAsString());
  for (const engine::OutputTensor& output : result.outputs) {
    AppendElement(v1::FuseResponse::kOutputsFieldNumber, output, slices);
  }
  std::size_t total_bytes = 0;
  for (const grpc::Slice& slice : slices) total_bytes += slice.size();
  RIDGELINE_CHECK(total_bytes <= kMaxMessageBytes);  // the engine was told kMaxAnswerTensorBytes
  return grpc::ByteBuffer(slices.data(), slices.size());
}

grpc::ByteBuffer Serialize(const google::protobuf::Message& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

grpc::ByteBuffer Serialize(const v1::SequencePart& part, const engine::OutgoingChunk& chunk) {
  std::vector<grpc::Slice> slices;
  slices.emplace_back(part.SerializeAsString());
  constexpr int kChunk = v1::SequencePart::kChunkFieldNumber;
  AppendFragment({kChunk, v1::SequenceChunk::kKeyFieldNumber}, chunk.key, slices);
  AppendFragment({kChunk, v1::SequenceChunk::kValueFieldNumber}, chunk.value, slices);
  return grpc::ByteBuffer(slices.data(), slices.size());
}

}  // namespace ridgeline::api
