#include "server/engine/memory_plan/terms.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/common/rounding.h"

namespace ridgeline::engine {
namespace {

constexpr char kZero[] = "Rajbhandari et al. 2020, ZeRO, section 3.1";
constexpr char kZeroStages[] = "Rajbhandari et al. 2020, ZeRO, section 5";
constexpr char kDettmers[] = "Dettmers et al. 2022, 8-bit Optimizers via Block-wise Quantization";
constexpr char kKorthikanti[] = "Korthikanti et al. 2022, Reducing Activation Recomputation, section 4";
constexpr char kFlash[] = "Dao et al. 2022, FlashAttention, section 3.1";
constexpr char kKwon[] = "Kwon et al. 2023, PagedAttention, section 3";
constexpr char kShazeer[] = "Shazeer 2020, GLU Variants Improve Transformer";

// Of sizes that may be anything: no overflow, and exact where a double is, up to 2^53 bytes.
std::int64_t ToBytes(double bytes) {
  constexpr double kMost = 9.2e18;
  return bytes < kMost ? static_cast<std::int64_t>(std::llround(bytes)) : std::numeric_limits<std::int64_t>::max();
}

// A request's extents as the formulas have them.
struct Symbols {
  explicit Symbols(const MemoryPlanRequest& request)
      : layers(static_cast<double>(request.model.layers)),
        tokens(static_cast<double>(request.context_tokens)),
        sequences(static_cast<double>(request.batch)),
        hidden(static_cast<double>(request.model.hidden_size)),
        query_heads(static_cast<double>(request.model.query_heads)),
        kv_heads(static_cast<double>(request.model.kv_heads)),
        head_dim(static_cast<double>(request.model.head_dim)),
        intermediate(static_cast<double>(request.model.intermediate_size)),
        vocabulary(static_cast<double>(request.model.vocabulary_size)),
        active_experts(static_cast<double>(request.model.experts_per_token)),
        element(static_cast<double>(kernels::ElementBytes(request.data_type))),
        tensor(static_cast<double>(request.sharding.tensor_parallel)),
        pipeline(static_cast<double>(request.sharding.pipeline_parallel)),
        data(static_cast<double>(request.sharding.data_parallel)),
        rows(tokens * sequences) {}

  const double layers, tokens, sequences, hidden, query_heads, kv_heads, head_dim, intermediate, vocabulary, active_experts;
  const double element, tensor, pipeline, data;
  const double rows;  // s b
};

class Terms {
 public:
  void Add(const char* name, double bytes, std::string formula, const char* source) {
    if (bytes >= 0.5) terms_.push_back({name, ToBytes(bytes), std::move(formula), source});
  }
  std::vector<MemoryTerm> Take() { return std::move(terms_); }

 private:
  std::vector<MemoryTerm> terms_;
};

// ---- The model's state ------------------------------------------------------------------------------------------------------

// Of a device whose data-parallel group shares it from `stage` on.
double Share(const MemoryPlanRequest& request, int stage) {
  return request.sharding.zero_stage >= stage ? static_cast<double>(request.sharding.data_parallel) : 1;
}

std::string StateFormula(const char* per_parameter, const MemoryPlanRequest& request, int stage) {
  return std::string(per_parameter) + (Share(request, stage) > 1 ? " N / (t p z)" : " N / (t p)");
}

void AddState(const MemoryPlanRequest& request, const Symbols& symbols, Terms& terms) {
  const double parameters = static_cast<double>(CountParameters(request.model)) / (symbols.tensor * symbols.pipeline);
  const bool is_trained = request.optimizer != Optimizer::kNone;
  const auto source = [&request](int stage) { return Share(request, stage) > 1 ? kZeroStages : kZero; };
  const double weights = symbols.element * parameters / (is_trained ? Share(request, 3) : 1);
  terms.Add("weights", weights, is_trained ? StateFormula("e", request, 3) : "e N / (t p)", source(is_trained ? 3 : 4));
  if (!is_trained) return;
  terms.Add("gradients", symbols.element * parameters / Share(request, 2), StateFormula("e", request, 2), source(2));
  // float32 weights are their own master copy.
  const bool has_master = request.data_type != kernels::DataType::kFloat32;
  if (has_master) terms.Add("master_weights", 4 * parameters / Share(request, 1), StateFormula("4", request, 1), source(1));
  switch (request.optimizer) {
    case Optimizer::kAdam:
      terms.Add("optimizer_state", 8 * parameters / Share(request, 1), StateFormula("(4 + 4)", request, 1), source(1));
      break;
    case Optimizer::kAdam8Bit:
      terms.Add("optimizer_state", 2 * parameters / Share(request, 1), StateFormula("(1 + 1)", request, 1), kDettmers);
      break;
    case Optimizer::kSgdMomentum:
      terms.Add("optimizer_state", 4 * parameters / Share(request, 1), StateFormula("4", request, 1), source(1));
      break;
    case Optimizer::kSgd:
    case Optimizer::kNone:
      break;
  }
}

// ---- Activations ------------------------------------------------------------------------------------------------------------

// What one layer keeps for its backward pass, by part. Tensor parallelism divides what lies between its collectives; sequence
// parallelism divides the rest too.
struct LayerActivations {
  double norms;      // inputs of both norms
  double attention;  // inputs of the projections; query, key, value
  double scores;     // what attention computes between query and output, quadratic in s
  double log_sum_exp;
  double feed_forward;
  double residual;  // the layer's input, which full checkpointing keeps

  double sum() const { return norms + attention + scores + log_sum_exp + feed_forward; }
};

LayerActivations ActivationsOf(const MemoryPlanRequest& request, const Symbols& s) {
  const double whole = request.sharding.sequence_parallel ? s.tensor : 1;  // divides what is not tensor-parallel
  const double mask = request.dropout ? 1 : 0;
  const double row = s.element * s.rows * s.hidden;
  const double query = s.element * s.rows * s.query_heads * s.head_dim / s.tensor;
  const double key_or_value = s.element * s.rows * s.kv_heads * s.head_dim / s.tensor;
  const double wide = s.element * s.rows * s.intermediate * s.active_experts / s.tensor;
  const double map = s.query_heads * s.tokens * s.rows / s.tensor;  // elements of the scores
  LayerActivations kept;
  kept.norms = 2 * row / whole;
  kept.attention = row / whole + query + 2 * key_or_value + query + mask * s.rows * s.hidden / whole;
  // Softmax's output; with dropout its mask and its own output.
  kept.scores = request.standard_attention ? map * (s.element + mask * (1 + s.element)) : 0;
  kept.log_sum_exp = request.standard_attention ? 0 : 4 * s.query_heads * s.rows / s.tensor;
  // The input, what the activation reads (and the gate), what the last matrix reads.
  kept.feed_forward = row / whole + (request.model.gated ? 3 : 2) * wide + mask * s.rows * s.hidden / whole;
  kept.residual = row / whole;
  return kept;
}

void AddTraining(const MemoryPlanRequest& request, const Symbols& s, Terms& terms) {
  const LayerActivations kept = ActivationsOf(request, s);
  // A device of the first stage holds the activations of as many layers as there are, for the sequences under way in the pipe.
  const double layers = s.layers;
  const bool is_full = request.checkpointing == Checkpointing::kFull;
  const bool is_selective = request.checkpointing == Checkpointing::kSelective;
  if (is_full) {
    terms.Add("activations.inputs", layers * kept.residual, "L e s b h (/ t with sequence parallelism)", kKorthikanti);
    terms.Add("activations.recomputed_layer", kept.sum(), "one layer's activations, computed again", kKorthikanti);
  } else {
    terms.Add("activations.norms", layers * kept.norms, "L 2 e s b h (/ t with sequence parallelism)", kKorthikanti);
    terms.Add("activations.attention", layers * kept.attention,
              request.dropout ? "L s b (e h + e (2 a + 2 k) d / t + h)" : "L s b (e h + e (2 a + 2 k) d / t)", kKorthikanti);
    terms.Add("activations.scores", (is_selective ? 1 : layers) * kept.scores,
              std::string(is_selective ? "" : "L ") + (request.dropout ? "(2 e + 1) a s^2 b / t" : "e a s^2 b / t"),
              kKorthikanti);
    terms.Add("activations.log_sum_exp", layers * kept.log_sum_exp, "L 4 a s b / t", kFlash);
    terms.Add("activations.feed_forward", layers * kept.feed_forward,
              request.model.gated ? "L s b (e h + 3 e i y / t), dropout + h" : "L s b (e h + 2 e i y / t), dropout + h",
              request.model.gated ? kShazeer : kKorthikanti);
  }
  if (s.vocabulary == 0) return;
  const double whole = request.sharding.sequence_parallel ? s.tensor : 1;
  const double head = 2 * s.element * s.rows * s.hidden / whole + 4 * s.rows * s.vocabulary / s.tensor +
                      (request.dropout ? s.rows * s.hidden / whole : 0);
  terms.Add("activations.output_head", head, "2 e s b h + 4 s b v / t, dropout + s b h", kKorthikanti);
}

// As this daemon's standard attention takes it: float32 scores; for 16-bit types probabilities of that type on a GPU, float32
// copies of query, key and value on a CPU.
void AddWorkspace(const MemoryPlanRequest& request, const Symbols& s, Terms& terms) {
  const bool is_narrow = request.data_type != kernels::DataType::kFloat32;
  const double map = s.query_heads * s.tokens * s.rows / s.tensor;
  const double copies = s.rows * (s.query_heads + 2 * s.kv_heads) * s.head_dim / s.tensor;
  const double bytes = 4 * map + (is_narrow ? (request.is_on_gpu ? s.element * map : 4 * copies) : 0);
  terms.Add("attention_workspace", bytes,
            !is_narrow ? "4 a s^2 b / t" : (request.is_on_gpu ? "(4 + e) a s^2 b / t" : "4 (a s^2 b + s b (a + 2 k) d) / t"),
            "kernels/attention/standard/README.md");
}

// One layer at a time; what it leaves is the residual stream.
void AddServing(const MemoryPlanRequest& request, const Symbols& s, Terms& terms) {
  const std::int64_t page = request.page_tokens;
  const double page_tokens = static_cast<double>(kernels::CeilDivide(request.context_tokens, page) * page);
  const double kv_element = static_cast<double>(kernels::ElementBytes(request.kv_cache_data_type));
  // No device has less than one head.
  const double kv_heads = std::max(1.0, s.kv_heads / s.tensor);
  terms.Add("kv_cache", 2 * (s.layers / s.pipeline) * kv_heads * s.head_dim * kv_element * page_tokens * s.sequences,
            "2 L k d s b (bytes of its type) / (t p), s in whole pages", kKwon);
  const double row = s.element * s.rows * s.hidden;
  const double attention = s.element * s.rows * (2 * s.query_heads + 2 * s.kv_heads) * s.head_dim / s.tensor;
  const double feed_forward = s.element * s.rows * s.intermediate * s.active_experts * (request.model.gated ? 3 : 2) / s.tensor;
  terms.Add("activations.layer", 2 * row + std::max(attention, feed_forward),
            "2 e s b h + the larger of e s b (2 a + 2 k) d / t and e s b i y (3 with a gate, else 2) / t", kKorthikanti);
  if (request.standard_attention) AddWorkspace(request, s, terms);
}

}  // namespace

std::int64_t CountParameters(const ModelGeometry& model) {
  if (model.parameters > 0) return model.parameters;
  const auto h = static_cast<double>(model.hidden_size);
  const auto d = static_cast<double>(model.head_dim);
  const auto heads = static_cast<double>(2 * model.query_heads + 2 * model.kv_heads);
  const auto experts = static_cast<double>(model.experts);
  const double attention = h * d * heads;
  const double feed_forward = (model.gated ? 3 : 2) * h * static_cast<double>(model.intermediate_size) * experts;
  const double router = model.experts > 1 ? h * experts : 0;
  const double layer = attention + feed_forward + router + 2 * h;
  const double embeddings = h * static_cast<double>(model.vocabulary_size) * (model.tied_embeddings ? 1 : 2);
  return ToBytes(static_cast<double>(model.layers) * layer + embeddings + h);
}

std::vector<MemoryTerm> PlanTerms(const MemoryPlanRequest& request) {
  const Symbols symbols(request);
  Terms terms;
  AddState(request, symbols, terms);
  request.optimizer == Optimizer::kNone ? AddServing(request, symbols, terms) : AddTraining(request, symbols, terms);
  return terms.Take();
}

}  // namespace ridgeline::engine
