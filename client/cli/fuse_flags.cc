#include "client/cli/fuse_flags.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "client/cli/arguments.h"
#include "client/cli/attention_flags.h"
#include "client/cli/cache_names.h"
#include "client/cli/tensor_file.h"
#include "client/cpp/tensor_io.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

ABSL_FLAG(std::string, op, "", "The operation, e.g. layer_norm. Empty: all are listed.");
ABSL_FLAG(std::string, mode, "both", "fused (one kernel), unfused (one kernel an elementary step) or both.");
ABSL_FLAG(
    std::string, shape, "",
    "Instead of files: random tensors, made by the device, of this shape, e.g. 16384,4096; its last extent is the row. rope: "
    "...,tokens,heads,head_dim. rope_append: batch,tokens,query heads,head_dim.");
ABSL_FLAG(std::string, input, "", "The input (swiglu: the gate): a .npy file, [..., row elements].");
ABSL_FLAG(std::string, residual, "", "What gelu_add, add_layer_norm and add_rms_norm add: a .npy file of the input's shape.");
ABSL_FLAG(std::string, up, "", "The up projection of swiglu: a .npy file of the gate's shape.");
ABSL_FLAG(std::string, weight, "", "Of a norm: a .npy file, [row elements]. Empty: ones; with --shape, random.");
ABSL_FLAG(std::optional<double>, epsilon, std::nullopt, "Added to a norm's variance. Empty: 1e-5.");
ABSL_FLAG(std::string, gelu, "", "Form of gelu: erf or tanh. Empty: erf.");
ABSL_FLAG(std::optional<double>, dropout, std::nullopt, "Probability of an element to be dropped. Empty: 0.");
ABSL_FLAG(std::optional<std::uint64_t>, dropout_seed, std::nullopt, "Seed of the dropout's mask. Empty: 0.");
ABSL_FLAG(std::optional<std::uint64_t>, dropout_offset, std::nullopt, "Of the call among those of one seed. Empty: 0.");
ABSL_FLAG(std::string, layout, "", "Pairs of a rotary embedding: half_split or interleaved. Empty: half_split.");
ABSL_FLAG(std::optional<std::int64_t>, rotary_dim, std::nullopt, "Elements of a head that turn. Empty: all.");
ABSL_FLAG(std::optional<double>, base, std::nullopt, "Base of a rotary embedding's angles. Empty: 10000.");
ABSL_FLAG(std::optional<std::int64_t>, first_position, std::nullopt,
          "Position of each sequence's first token in the rotary embedding of rope. Empty: 0.");

// Of `attend`.
ABSL_DECLARE_FLAG(std::string, query);
ABSL_DECLARE_FLAG(std::string, key);
ABSL_DECLARE_FLAG(std::string, value);
ABSL_DECLARE_FLAG(std::string, bias);
ABSL_DECLARE_FLAG(std::string, sequence);
ABSL_DECLARE_FLAG(std::int32_t, layer);
ABSL_DECLARE_FLAG(std::int64_t, kv_heads);
ABSL_DECLARE_FLAG(std::int64_t, value_head_dim);

namespace ridgeline::cli {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using Shape = std::vector<std::int64_t>;

const OneofDescriptor& Operations() { return *v1::FuseRequest::descriptor()->FindOneofByName("op"); }

absl::StatusOr<const FieldDescriptor*> FindOperation(const std::string& name) {
  std::vector<std::string> names;
  for (int i = 0; i < Operations().field_count(); ++i) {
    names.push_back(Operations().field(i)->name());
    if (names.back() == name) return Operations().field(i);
  }
  const std::optional<std::string> meant = ClosestMatch(name, names);
  return UsageError(
      absl::StrCat("'", name, "' is no operation",
                   meant.has_value() ? absl::StrCat("; is ", *meant, " meant?") : "; `ridgeline fuse` lists them"));
}

// The file that each tensor field comes from; the same flag may be several operations'.
struct TensorFlag {
  const char* field;
  const char* flag;
  std::string path;
};

std::vector<TensorFlag> TensorFlags() {
  return {{"input", "input", absl::GetFlag(FLAGS_input)},          {"gate", "input", absl::GetFlag(FLAGS_input)},
          {"residual", "residual", absl::GetFlag(FLAGS_residual)}, {"up", "up", absl::GetFlag(FLAGS_up)},
          {"weight", "weight", absl::GetFlag(FLAGS_weight)},       {"bias", "bias", absl::GetFlag(FLAGS_bias)},
          {"query", "query", absl::GetFlag(FLAGS_query)},          {"new_key", "key", absl::GetFlag(FLAGS_key)},
          {"new_value", "value", absl::GetFlag(FLAGS_value)}};
}

// A random tensor's shape, by its field: that of --shape, one element for each column, or as many heads as the cache has.
Shape RandomShape(const std::string& field, const Shape& shape) {
  if (field == "weight" || field == "bias") return {shape.back()};
  Shape result = shape;
  const std::int64_t kv_heads = absl::GetFlag(FLAGS_kv_heads);
  const std::int64_t value_head_dim = absl::GetFlag(FLAGS_value_head_dim);
  if (field != "new_key" && field != "new_value") return result;
  if (kv_heads > 0 && result.size() > 1) result[result.size() - 2] = kv_heads;
  if (field == "new_value" && value_head_dim > 0) result.back() = value_head_dim;
  return result;
}

v1::Tensor& MutableTensor(Message& op, const FieldDescriptor& field) {
  return static_cast<v1::Tensor&>(*op.GetReflection()->MutableMessage(&op, &field));
}

absl::Status SetTensors(Message& op) {
  const absl::StatusOr<v1::DataType> type = DataTypeFromFlags();
  if (!type.ok()) return type.status();
  const auto shape = ParseIntegers("shape", absl::GetFlag(FLAGS_shape), /*minimum=*/0);
  if (!shape.ok()) return shape.status();
  std::uint64_t seed = absl::GetFlag(FLAGS_seed);
  const std::vector<TensorFlag> flags = TensorFlags();
  for (const TensorFlag& flag : flags) {
    const FieldDescriptor* const field = op.GetDescriptor()->FindFieldByName(flag.field);
    if (field == nullptr) continue;
    if (!flag.path.empty()) {
      absl::StatusOr<v1::Tensor> tensor = TensorFromFile(flag.path, *type);
      if (!tensor.ok()) return tensor.status();
      MutableTensor(op, *field) = *std::move(tensor);
    } else if (!shape->empty()) {
      const v1::DataType random_type = *type == v1::DATA_TYPE_UNSPECIFIED ? v1::DATA_TYPE_FLOAT32 : *type;
      MutableTensor(op, *field) = client::RandomTensor(random_type, RandomShape(flag.field, *shape), seed++);
    }
  }
  return absl::OkStatus();
}

// A file that the operation has no tensor for.
absl::Status CheckFilesBelongTo(const Descriptor& op) {
  const std::vector<TensorFlag> flags = TensorFlags();
  for (const TensorFlag& flag : flags) {
    if (flag.path.empty()) continue;
    bool is_used = false;
    for (const TensorFlag& other : flags) {
      is_used |= std::strcmp(other.flag, flag.flag) == 0 && op.FindFieldByName(other.field) != nullptr;
    }
    if (!is_used) return UsageError(absl::StrCat("--", flag.flag, " is not for ", absl::GetFlag(FLAGS_op)));
  }
  return absl::OkStatus();
}

// Sets an option's field; null: the flag is not given.
class OptionSetter {
 public:
  explicit OptionSetter(Message& op) : op_(op), reflection_(*op.GetReflection()) {}

  void Set(const char* flag, const char* field_name, const std::optional<double>& value) {
    if (const FieldDescriptor* field = Find(flag, field_name, value.has_value())) reflection_.SetDouble(&op_, field, *value);
  }
  void Set(const char* flag, const char* field_name, const std::optional<std::uint64_t>& value) {
    if (const FieldDescriptor* field = Find(flag, field_name, value.has_value())) reflection_.SetUInt64(&op_, field, *value);
  }
  void Set(const char* flag, const char* field_name, const std::optional<std::int64_t>& value) {
    if (const FieldDescriptor* field = Find(flag, field_name, value.has_value())) reflection_.SetInt64(&op_, field, *value);
  }
  // One of the enumerators, which have these names and the numbers 1, 2.
  void SetEnum(const char* flag, const char* field_name, const std::string& name, absl::Span<const char* const> names) {
    const FieldDescriptor* const field = Find(flag, field_name, !name.empty());
    if (field == nullptr) return;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (name == names[i]) return reflection_.SetEnumValue(&op_, field, static_cast<int>(i) + 1);
    }
    status_.Update(UsageError(absl::StrCat("--", flag, " is '", name, "'; ", names[0], " and ", names[1], " are allowed")));
  }

  const absl::Status& status() const { return status_; }

 private:
  const FieldDescriptor* Find(const char* flag, const char* field_name, bool is_given) {
    if (!is_given) return nullptr;
    const FieldDescriptor* const field = op_.GetDescriptor()->FindFieldByName(field_name);
    if (field == nullptr) status_.Update(UsageError(absl::StrCat("--", flag, " is not for ", absl::GetFlag(FLAGS_op))));
    return field;
  }

  Message& op_;
  const google::protobuf::Reflection& reflection_;
  absl::Status status_;
};

absl::Status SetOptions(Message& op) {
  static constexpr const char* kForms[] = {"erf", "tanh"};
  static constexpr const char* kLayouts[] = {"half_split", "interleaved"};
  OptionSetter setter(op);
  setter.Set("epsilon", "epsilon", absl::GetFlag(FLAGS_epsilon));
  setter.SetEnum("gelu", "form", absl::GetFlag(FLAGS_gelu), kForms);
  setter.Set("dropout", "probability", absl::GetFlag(FLAGS_dropout));
  setter.Set("dropout_seed", "seed", absl::GetFlag(FLAGS_dropout_seed));
  setter.Set("dropout_offset", "offset", absl::GetFlag(FLAGS_dropout_offset));
  setter.SetEnum("layout", "layout", absl::GetFlag(FLAGS_layout), kLayouts);
  setter.Set("rotary_dim", "rotary_dim", absl::GetFlag(FLAGS_rotary_dim));
  setter.Set("base", "base", absl::GetFlag(FLAGS_base));
  return setter.status();
}

// Of [..., tokens, heads, head_dim]: each sequence's tokens, counted from --first_position.
absl::Status SetPositions(v1::Rope& rope) {
  const auto& extents = rope.input().shape();
  const std::int64_t first = absl::GetFlag(FLAGS_first_position).value_or(0);
  if (extents.size() < 3) return absl::OkStatus();
  const Shape shape(extents.begin(), extents.end() - 2);
  const std::optional<std::int64_t> bytes = client::ByteCount(shape, sizeof(std::int64_t));
  const bool is_one_sequence = std::all_of(shape.begin(), shape.end() - 1, [](std::int64_t extent) { return extent == 1; });
  if (!bytes.has_value() || (is_one_sequence && first == 0)) return absl::OkStatus();
  if (*bytes > std::numeric_limits<std::int32_t>::max()) {
    return UsageError(absl::StrCat("--shape is ", client::ShapeString(shape), " tokens; their positions don't fit a message"));
  }
  std::string& data = *rope.mutable_positions()->mutable_inline_data();
  std::vector<std::int64_t> sequence(shape.back());
  std::iota(sequence.begin(), sequence.end(), first);
  while (static_cast<std::int64_t>(data.size()) < *bytes) {
    data.append(reinterpret_cast<const char*>(sequence.data()), sequence.size() * sizeof(std::int64_t));
  }
  rope.mutable_positions()->set_data_type(v1::DATA_TYPE_INT64);
  rope.mutable_positions()->mutable_shape()->Add(shape.begin(), shape.end());
  return absl::OkStatus();
}

absl::Status SetSequences(v1::RopeAppend& append) {
  if (absl::GetFlag(FLAGS_sequence).empty()) return UsageError("rope_append needs --sequence");
  for (const absl::string_view text : absl::StrSplit(absl::GetFlag(FLAGS_sequence), ',')) {
    const absl::StatusOr<CacheName> name = ParseCacheName(text);
    if (!name.ok()) return name.status();
    if (!name->is_sequence) return UsageError(absl::StrCat(name->cache(), " is a cache; --sequence needs sequences (chat/a)"));
    append.add_sequences(name->sequence());
  }
  append.set_layer(absl::GetFlag(FLAGS_layer));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<v1::ExecutionMode>> ModesFromFlags() {
  const std::string mode = absl::GetFlag(FLAGS_mode);
  if (mode == "fused") return std::vector{v1::EXECUTION_MODE_FUSED};
  if (mode == "unfused") return std::vector{v1::EXECUTION_MODE_UNFUSED};
  if (mode == "both") return std::vector{v1::EXECUTION_MODE_UNFUSED, v1::EXECUTION_MODE_FUSED};
  return UsageError(absl::StrCat("--mode is '", mode, "'; fused, unfused and both are allowed"));
}

std::string ModeName(v1::ExecutionMode mode) { return mode == v1::EXECUTION_MODE_UNFUSED ? "unfused" : "fused"; }

absl::StatusOr<v1::FuseRequest> FuseRequestFromFlags() {
  const absl::StatusOr<const FieldDescriptor*> field = FindOperation(absl::GetFlag(FLAGS_op));
  if (!field.ok()) return field.status();
  v1::FuseRequest request;
  Message& op = *request.GetReflection()->MutableMessage(&request, *field);
  absl::Status status = CheckFilesBelongTo(*op.GetDescriptor());
  if (status.ok()) status = SetTensors(op);
  if (status.ok()) status = SetOptions(op);
  if (status.ok() && request.has_rope()) status = SetPositions(*request.mutable_rope());
  if (status.ok() && !request.has_rope() && absl::GetFlag(FLAGS_first_position).has_value()) {
    status = UsageError(absl::StrCat("--first_position is not for ", absl::GetFlag(FLAGS_op)));
  }
  if (status.ok() && request.has_rope_append()) status = SetSequences(*request.mutable_rope_append());
  if (!status.ok()) return status;
  if (MainTensor(request).shape().empty()) return UsageError("--shape is needed, or files");
  return request;
}

const v1::Tensor& MainTensor(const v1::FuseRequest& request) {
  if (request.has_rope_append()) {
    return request.rope_append().has_query() ? request.rope_append().query() : request.rope_append().new_key();
  }
  const FieldDescriptor* const field = request.GetReflection()->GetOneofFieldDescriptor(request, &Operations());
  const Message& op = request.GetReflection()->GetMessage(request, field);
  const FieldDescriptor* const input = op.GetDescriptor()->FindFieldByNumber(1);  // of every operation that takes rows
  return static_cast<const v1::Tensor&>(op.GetReflection()->GetMessage(op, input));
}

}  // namespace ridgeline::cli
