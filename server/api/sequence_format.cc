#include "server/api/sequence_format.h"

#include <array>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/api/crc32c.h"
#include "server/api/data_type.h"
#include "server/api/tensor_converter.h"
#include "server/api/wire_reader.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"

namespace ridgeline::api {
namespace {

// The overloads of data_type.h and tensor_converter.h, beside this file's own.
using api::FromMessage;

std::uint32_t Extend(std::uint32_t crc, const engine::OutputTensor& tensor) {
  if (tensor.data == nullptr) return crc;
  return ExtendCrc32c(crc, tensor.data->data(), static_cast<std::size_t>(tensor.data->size_bytes()));
}

absl::StatusOr<std::uint32_t> Extend(std::uint32_t crc, const std::optional<engine::Tensor>& tensor, const char* field) {
  const auto* data = tensor.has_value() ? std::get_if<engine::InlineData>(&tensor->storage) : nullptr;
  if (data == nullptr) return base::InvalidField(field, "is missing: the elements of an import come inline");
  for (const device::HostSlice& slice : data->slices) {
    crc = ExtendCrc32c(crc, slice.data, static_cast<std::size_t>(slice.size_bytes));
  }
  return crc;
}

absl::Status Mismatch(const char* field, std::uint32_t claimed, std::uint32_t found) {
  return base::InvalidField(field, absl::StrFormat("crc32c is %08x, but what came has %08x", claimed, found),
                            base::kReasonChecksumMismatch);
}

absl::StatusOr<engine::SequenceHeader> FromMessage(const v1::SequenceHeader& message) {
  if (message.format_version() != kSequenceFormatVersion) {
    return base::InvalidField(
        "part.header.format_version",
        absl::StrCat("format_version is ", message.format_version(), "; this server reads version ", kSequenceFormatVersion));
  }
  RIDGELINE_ASSIGN_OR_RETURN(const std::optional<kernels::DataType> data_type,
                             FromMessage(message.data_type(), "part.header.data_type"));
  if (!data_type.has_value()) return base::InvalidField("part.header.data_type", "is missing");
  return engine::SequenceHeader{.layers = message.layers(),
                                .kv_heads = message.kv_heads(),
                                .head_dim = message.head_dim(),
                                .value_head_dim = message.value_head_dim(),
                                .data_type = *data_type,
                                .lengths = {message.lengths().begin(), message.lengths().end()}};
}

absl::StatusOr<engine::IncomingChunk> FromMessage(const v1::SequenceChunk& message, const Source& source) {
  engine::IncomingChunk chunk;
  chunk.layer = message.layer();
  chunk.token_begin = message.token_begin();
  RIDGELINE_RETURN_IF_ERROR(Convert(message.has_key(), message.key(), "part.chunk.key", source, chunk.key));
  RIDGELINE_RETURN_IF_ERROR(Convert(message.has_value(), message.value(), "part.chunk.value", source, chunk.value));
  return chunk;
}

}  // namespace

SequenceSummary::SequenceSummary(const engine::SequenceHeader& header) {
  Add(kSequenceFormatVersion);
  for (const std::int64_t number : {header.layers, header.kv_heads, header.head_dim, header.value_head_dim}) Add(number);
  Add(ToMessage(header.data_type));
  for (const std::int64_t length : header.lengths) Add(length);
}

void SequenceSummary::AddChunk(std::int64_t layer, std::int64_t token_begin, std::int64_t tokens, std::uint32_t chunk_crc32c) {
  ++num_chunks_;
  for (const std::int64_t number : {layer, token_begin, tokens, std::int64_t{chunk_crc32c}}) Add(number);
}

v1::SequenceTrailer SequenceSummary::trailer() const {
  v1::SequenceTrailer trailer;
  trailer.set_chunk_count(num_chunks_);
  trailer.set_crc32c(crc32c_);
  return trailer;
}

void SequenceSummary::Add(std::int64_t number) {
  std::array<unsigned char, sizeof(number)> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(number >> (8 * i));
  crc32c_ = ExtendCrc32c(crc32c_, bytes.data(), bytes.size());
}

v1::SequencePart ToMessage(const engine::SequenceHeader& header) {
  v1::SequencePart part;
  v1::SequenceHeader& message = *part.mutable_header();
  message.set_format_version(kSequenceFormatVersion);
  message.set_layers(static_cast<std::int32_t>(header.layers));
  message.set_kv_heads(static_cast<std::int32_t>(header.kv_heads));
  message.set_head_dim(static_cast<std::int32_t>(header.head_dim));
  message.set_value_head_dim(static_cast<std::int32_t>(header.value_head_dim));
  message.set_data_type(ToMessage(header.data_type));
  message.mutable_lengths()->Add(header.lengths.begin(), header.lengths.end());
  return part;
}

v1::SequencePart ToMessage(const engine::OutgoingChunk& chunk, SequenceSummary& summary) {
  v1::SequencePart part;
  v1::SequenceChunk& message = *part.mutable_chunk();
  message.set_layer(static_cast<std::int32_t>(chunk.layer));
  message.set_token_begin(chunk.token_begin);
  Convert(chunk.key, *message.mutable_key());
  Convert(chunk.value, *message.mutable_value());
  message.set_crc32c(Extend(Extend(0, chunk.key), chunk.value));
  summary.AddChunk(chunk.layer, chunk.token_begin, chunk.key.shape.at(0), message.crc32c());
  return part;
}

absl::StatusOr<ImportMessage> ParseImportSequenceRequest(absl::Span<const device::HostSlice> wire,
                                                         std::shared_ptr<const void> owner) {
  RIDGELINE_ASSIGN_OR_RETURN(const SplitMessage split, Split(*v1::ImportSequenceRequest::descriptor(), wire));
  v1::ImportSequenceRequest message;
  RIDGELINE_RETURN_IF_ERROR(ParseSkeleton(split, message));
  ImportMessage parsed;
  parsed.parent = message.parent();
  parsed.sequence_id = message.sequence_id();
  switch (message.part().part_case()) {
    case v1::SequencePart::kHeader: {
      RIDGELINE_ASSIGN_OR_RETURN(parsed.part, FromMessage(message.part().header()));
      break;
    }
    case v1::SequencePart::kChunk: {
      RIDGELINE_ASSIGN_OR_RETURN(parsed.part, FromMessage(message.part().chunk(), Source{split, std::move(owner)}));
      parsed.chunk_crc32c = message.part().chunk().crc32c();
      break;
    }
    case v1::SequencePart::kTrailer:
      parsed.part = message.part().trailer();
      break;
    case v1::SequencePart::PART_NOT_SET:
      return base::InvalidField("part", "is missing: a header, a chunk or a trailer is needed");
  }
  return parsed;
}

absl::Status CheckChunk(const engine::IncomingChunk& chunk, std::uint32_t chunk_crc32c, SequenceSummary& summary) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::uint32_t key_crc32c, Extend(0, chunk.key, "part.chunk.key.inline_data"));
  RIDGELINE_ASSIGN_OR_RETURN(const std::uint32_t crc32c, Extend(key_crc32c, chunk.value, "part.chunk.value.inline_data"));
  if (crc32c != chunk_crc32c) return Mismatch("part.chunk.crc32c", chunk_crc32c, crc32c);
  const std::int64_t tokens = chunk.key->shape.empty() ? 0 : chunk.key->shape[0];
  summary.AddChunk(chunk.layer, chunk.token_begin, tokens, crc32c);
  return absl::OkStatus();
}

absl::Status CheckTrailer(const v1::SequenceTrailer& trailer, const SequenceSummary& summary) {
  const v1::SequenceTrailer expected = summary.trailer();
  if (trailer.chunk_count() != expected.chunk_count()) {
    return base::InvalidField("part.trailer.chunk_count",
                              absl::StrCat("chunk_count is ", trailer.chunk_count(), ", but ", expected.chunk_count(), " came"),
                              base::kReasonTruncatedExport);
  }
  if (trailer.crc32c() != expected.crc32c()) return Mismatch("part.trailer.crc32c", trailer.crc32c(), expected.crc32c());
  return absl::OkStatus();
}

}  // namespace ridgeline::api
