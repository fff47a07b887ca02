#include "server/api/wire_reader.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/wire_format_lite.h"
#include "ridgeline/v1/tensor.pb.h"
#include "server/base/check.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"

namespace ridgeline::api {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

// Of a 64-bit value; tags and lengths have 32 bits, and the generated parser takes no more bytes for them either.
constexpr int kMaxVarintBytes = 10;
constexpr int kMaxVarint32Bytes = 5;

absl::Status Malformed(std::string_view what) {
  return base::WithReason(absl::InvalidArgumentError(absl::StrCat("the request is not a valid message: ", std::string(what))),
                          base::kReasonMalformedMessage);
}

// Reads forward through bytes that lie in pieces.
class Cursor {
 public:
  explicit Cursor(absl::Span<const device::HostSlice> slices) : slices_(slices) {
    for (const device::HostSlice& slice : slices) remaining_ += slice.size_bytes;
  }

  std::int64_t remaining() const { return remaining_; }

  // The next `size_bytes` bytes, which remain, as pieces; empty pieces are left out.
  std::vector<device::HostSlice> Take(std::int64_t size_bytes) {
    std::vector<device::HostSlice> taken;
    remaining_ -= size_bytes;
    while (size_bytes > 0) {
      const device::HostSlice& slice = slices_[slice_idx_];
      const std::int64_t here = std::min(size_bytes, slice.size_bytes - offset_);
      if (here > 0) taken.push_back({static_cast<const std::byte*>(slice.data) + offset_, here});
      offset_ += here;
      size_bytes -= here;
      if (offset_ == slice.size_bytes) NextSlice();
    }
    return taken;
  }

  // The next byte, which remains.
  std::uint8_t TakeByte() {
    while (offset_ == slices_[slice_idx_].size_bytes) NextSlice();
    --remaining_;
    return static_cast<const std::uint8_t*>(slices_[slice_idx_].data)[offset_++];
  }

 private:
  void NextSlice() {
    ++slice_idx_;
    offset_ = 0;
  }

  absl::Span<const device::HostSlice> slices_;
  std::size_t slice_idx_ = 0;
  std::int64_t offset_ = 0;  // in slices_[slice_idx_]
  std::int64_t remaining_ = 0;
};

void AppendVarint(std::uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

std::string MakeToken(std::uint32_t payload_idx) {
  std::string token(sizeof(payload_idx), '\0');
  std::memcpy(token.data(), &payload_idx, sizeof(payload_idx));
  return token;
}

bool IsInlineData(const FieldDescriptor& field) {
  return field.number() == v1::Tensor::kInlineDataFieldNumber && field.containing_type() == v1::Tensor::descriptor();
}

class Splitter {
 public:
  Splitter(absl::Span<const device::HostSlice> wire, SplitMessage& split) : cursor_(wire), split_(split) {}

  std::int64_t remaining() const { return cursor_.remaining(); }

  // Splits the next `size_bytes` bytes as fields of `descriptor`. Recursion ends with the schema: no message of ours contains
  // itself.
  absl::Status SplitFields(const Descriptor& descriptor, std::int64_t size_bytes, std::string& out) {
    const std::int64_t end = cursor_.remaining() - size_bytes;
    while (cursor_.remaining() > end) {
      RIDGELINE_RETURN_IF_ERROR(SplitField(descriptor, end, out));
      if (static_cast<std::int64_t>(out.size()) > kMaxSkeletonBytes) {
        return Malformed(absl::StrCat("more than ", kMaxSkeletonBytes, " bytes beside its tensors"));
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status SplitField(const Descriptor& descriptor, std::int64_t end, std::string& out) {
    std::uint64_t tag = 0;
    RIDGELINE_RETURN_IF_ERROR(ReadVarint(end, kMaxVarint32Bytes, tag));
    const std::uint64_t number = tag >> 3;
    if (number == 0 || number > FieldDescriptor::kMaxNumber) return Malformed("a field number out of range");
    AppendVarint(tag, out);
    switch (static_cast<WireFormatLite::WireType>(tag & 7)) {
      case WireFormatLite::WIRETYPE_VARINT: {
        std::uint64_t value = 0;
        RIDGELINE_RETURN_IF_ERROR(ReadVarint(end, kMaxVarintBytes, value));
        AppendVarint(value, out);
        return absl::OkStatus();
      }
      case WireFormatLite::WIRETYPE_FIXED64:
        return CopyBytes(8, end, out);
      case WireFormatLite::WIRETYPE_FIXED32:
        return CopyBytes(4, end, out);
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
        return SplitDelimited(descriptor.FindFieldByNumber(static_cast<int>(number)), end, out);
      default:
        return Malformed("a group or an unknown wire type");
    }
  }

  absl::Status SplitDelimited(const FieldDescriptor* field, std::int64_t end, std::string& out) {
    std::uint64_t length = 0;
    RIDGELINE_RETURN_IF_ERROR(ReadVarint(end, kMaxVarint32Bytes, length));
    if (length > static_cast<std::uint64_t>(cursor_.remaining() - end)) return Malformed("a length beyond the end");
    const auto size_bytes = static_cast<std::int64_t>(length);
    if (field != nullptr && IsInlineData(*field)) return TakePayload(size_bytes, out);
    if (field != nullptr && field->message_type() != nullptr) {
      std::string nested;
      RIDGELINE_RETURN_IF_ERROR(SplitFields(*field->message_type(), size_bytes, nested));
      AppendVarint(nested.size(), out);
      out += nested;
      return absl::OkStatus();
    }
    AppendVarint(length, out);
    return CopyBytes(size_bytes, end, out);
  }

  absl::Status TakePayload(std::int64_t size_bytes, std::string& out) {
    if (split_.payloads.size() == kMaxPayloads) return Malformed(absl::StrCat("more than ", kMaxPayloads, " tensors"));
    const std::string token = MakeToken(static_cast<std::uint32_t>(split_.payloads.size()));
    AppendVarint(token.size(), out);
    out += token;
    split_.payloads.push_back({cursor_.Take(size_bytes), size_bytes});
    return absl::OkStatus();
  }

  absl::Status CopyBytes(std::int64_t size_bytes, std::int64_t end, std::string& out) {
    if (size_bytes > cursor_.remaining() - end) return Malformed("it ends inside a field");
    if (size_bytes > kMaxSkeletonBytes) return Malformed("a field beside its tensors is too large");
    for (const device::HostSlice& slice : cursor_.Take(size_bytes)) {
      out.append(static_cast<const char*>(slice.data), static_cast<std::size_t>(slice.size_bytes));
    }
    return absl::OkStatus();
  }

  absl::Status ReadVarint(std::int64_t end, int max_bytes, std::uint64_t& value) {
    value = 0;
    for (int i = 0; i < max_bytes; ++i) {
      if (cursor_.remaining() <= end) return Malformed("it ends inside a field");
      const std::uint8_t byte = cursor_.TakeByte();
      value |= static_cast<std::uint64_t>(byte & 0x7f) << (7 * i);
      if (byte < 0x80) return absl::OkStatus();
    }
    return Malformed("a number of too many bytes");
  }

  Cursor cursor_;
  SplitMessage& split_;
};

}  // namespace

const Payload& SplitMessage::FindPayload(const std::string& token) const {
  std::uint32_t payload_idx = 0;
  RIDGELINE_CHECK(token.size() == sizeof(payload_idx));
  std::memcpy(&payload_idx, token.data(), sizeof(payload_idx));
  RIDGELINE_CHECK(payload_idx < payloads.size());
  return payloads[payload_idx];
}

absl::Status ParseSkeleton(const SplitMessage& split, google::protobuf::Message& message) {
  if (message.ParseFromString(split.skeleton)) return absl::OkStatus();
  return base::WithReason(
      absl::InvalidArgumentError(absl::StrCat("the request is not a valid ", message.GetDescriptor()->full_name())),
      base::kReasonMalformedMessage);
}

absl::StatusOr<SplitMessage> Split(const Descriptor& descriptor, absl::Span<const device::HostSlice> wire) {
  SplitMessage split;
  Splitter splitter(wire, split);
  RIDGELINE_RETURN_IF_ERROR(splitter.SplitFields(descriptor, splitter.remaining(), split.skeleton));
  return split;
}

}  // namespace ridgeline::api
