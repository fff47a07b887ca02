#include "server/engine/kv_cache/resource_name.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/base/error.h"

namespace ridgeline::engine::kv_cache {
namespace {

constexpr std::string_view kCaches = "kvCaches/";
constexpr std::string_view kSequences = "/sequences/";
constexpr std::size_t kMaxIdLength = 63;
constexpr std::size_t kMaxQuotedLength = 160;  // longer than any name that is right

// The packaged Abseil's string_view is a type of its own.
absl::string_view ToAbsl(std::string_view text) { return absl::string_view(text.data(), text.size()); }

bool IsIdCharacter(char c) { return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-'; }

// What a client sent, fit for a message.
std::string Quote(std::string_view text) {
  const bool cut = text.size() > kMaxQuotedLength;
  return absl::StrCat("\"", absl::CHexEscape(ToAbsl(text.substr(0, kMaxQuotedLength))), cut ? "\"..." : "\"");
}

bool ConsumePrefix(std::string_view& text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) return false;
  text.remove_prefix(prefix.size());
  return true;
}

absl::Status NotAName(std::string_view field, std::string_view name, const char* pattern) {
  return base::InvalidField(field, absl::StrCat("is ", Quote(name), "; a name like ", pattern, " is needed"));
}

}  // namespace

bool IsId(std::string_view id) {
  return !id.empty() && id.size() <= kMaxIdLength && absl::ascii_islower(id.front()) && id.back() != '-' &&
         std::all_of(id.begin(), id.end(), IsIdCharacter);
}

std::string CacheName(std::string_view cache_id) { return absl::StrCat(ToAbsl(kCaches), ToAbsl(cache_id)); }

std::string SequenceName(std::string_view cache_id, std::string_view sequence_id) {
  return absl::StrCat(ToAbsl(kCaches), ToAbsl(cache_id), ToAbsl(kSequences), ToAbsl(sequence_id));
}

absl::StatusOr<std::string_view> ParseCacheName(std::string_view field, std::string_view name) {
  std::string_view id = name;
  if (!ConsumePrefix(id, kCaches) || !IsId(id)) return NotAName(field, name, "kvCaches/{kv_cache}");
  return id;
}

absl::StatusOr<SequencePath> ParseSequenceName(std::string_view field, std::string_view name) {
  const std::optional<SequencePath> path = SplitSequenceName(name);
  if (!path.has_value()) return NotASequenceName(field, name);
  return *path;
}

std::optional<SequencePath> SplitSequenceName(std::string_view name) {
  if (!ConsumePrefix(name, kCaches)) return std::nullopt;
  const std::string_view cache_id = name.substr(0, name.find('/'));
  name.remove_prefix(cache_id.size());
  if (!ConsumePrefix(name, kSequences) || !IsId(cache_id) || !IsId(name)) return std::nullopt;
  return SequencePath{.cache_id = cache_id, .sequence_id = name};
}

absl::Status NotASequenceName(std::string_view field, std::string_view name) {
  return NotAName(field, name, "kvCaches/{kv_cache}/sequences/{sequence}");
}

absl::StatusOr<std::string> CheckOrMakeId(std::string_view field, std::string_view id) {
  if (id.empty()) return MakeId();
  if (IsId(id)) return std::string(id);
  return base::InvalidField(field, absl::StrCat("is ", Quote(id), "; 1 to ", kMaxIdLength,
                                                " lower-case letters, digits and hyphens are allowed, the first a letter, the "
                                                "last no hyphen"));
}

std::string MakeId() {
  std::random_device device;
  std::string id = "x";
  for (int i = 0; i < 4; ++i) absl::StrAppend(&id, absl::Hex(std::uint32_t{device()}, absl::kZeroPad8));
  return id;
}

std::string MakeRoutingToken(std::string_view instance_id) { return absl::StrCat(ToAbsl(instance_id), ".", MakeId()); }

std::string_view InstanceOfToken(std::string_view routing_token) {
  const std::size_t dot = routing_token.rfind('.');
  if (dot == std::string_view::npos || !IsId(routing_token.substr(dot + 1))) return "";
  return routing_token.substr(0, dot);
}

}  // namespace ridgeline::engine::kv_cache
