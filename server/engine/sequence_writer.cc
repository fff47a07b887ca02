#include "server/engine/sequence_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"
#include "server/engine/append_work.h"
#include "server/engine/token_tensor.h"

namespace ridgeline::engine {
namespace {

using base::InvalidField;

class SequenceWriterImpl final : public SequenceWriter {
 public:
  SequenceWriterImpl(std::shared_ptr<const kv_cache::Transfer> transfer, SequenceHeader header, kv_cache::KvCacheStore& store,
                     std::shared_ptr<Scheduler> scheduler, const base::Clock& clock)
      : transfer_(std::move(transfer)),
        header_(std::move(header)),
        store_(store),
        scheduler_(std::move(scheduler)),
        clock_(clock) {
    SkipFullLayers();
  }

  std::shared_ptr<Call> Append(IncomingChunk chunk, CallContext context, Done done) override {
    absl::StatusOr<AppendProblem> problem = Check(std::move(chunk));
    if (!problem.ok()) {
      done(problem.status());
      return nullptr;
    }
    const std::int64_t tokens = problem->selection->append_tokens(0);
    WorkTraits traits = TraitsOf(*problem, context);
    auto advance_and_answer = [this, tokens,
                               done = std::move(done)](const absl::StatusOr<AppendKeyValueResult>& result) mutable {
      if (result.ok()) {
        token_ += tokens;
        SkipFullLayers();
      }
      done(result.status());
    };
    return scheduler_->Submit(std::make_unique<AppendWork>(*std::move(problem), store_, std::move(advance_and_answer)),
                              std::move(traits), clock_.Now());
  }

  absl::StatusOr<std::string> Commit() override {
    if (layer_ < header_.layers) {
      return base::WithReason(absl::InvalidArgumentError(absl::StrCat("layer ", layer_, " has ", token_,
                                                                      " tokens; the header says ", header_.lengths[layer_])),
                              base::kReasonTruncatedExport);
    }
    return store_.Publish(*transfer_).name;
  }

 private:
  void SkipFullLayers() {
    while (layer_ < header_.layers && token_ == header_.lengths[layer_]) {
      ++layer_;
      token_ = 0;
    }
  }

  absl::StatusOr<AppendProblem> Check(IncomingChunk chunk) const {
    if (layer_ == header_.layers) return InvalidField("part.chunk", "comes after all tokens that the header says");
    if (chunk.layer != layer_) {
      return InvalidField("part.chunk.layer", absl::StrCat("is ", chunk.layer, "; layer ", layer_, " is next"));
    }
    if (chunk.token_begin != token_) {
      return InvalidField("part.chunk.token_begin", absl::StrCat("is ", chunk.token_begin, "; token ", token_, " is next"));
    }
    RIDGELINE_ASSIGN_OR_RETURN(TokenTensor key, TakeTokenTensor("part.chunk.key", chunk.key));
    RIDGELINE_ASSIGN_OR_RETURN(TokenTensor value, TakeTokenTensor("part.chunk.value", chunk.value));
    RIDGELINE_RETURN_IF_ERROR(CheckValueMatchesKey("part.chunk.value", key, value));
    const std::int64_t left = header_.lengths[layer_] - token_;
    if (!key.layout.ragged || key.layout.tokens < 1 || key.layout.tokens > left) {
      return InvalidField("part.chunk.key.shape", absl::StrCat("is ", FormatShape(key.shape), "; [1 to ", left, ", ",
                                                               header_.kv_heads, ", ", header_.head_dim, "] is needed"));
    }
    RIDGELINE_RETURN_IF_ERROR(CheckRowsFit(transfer_->geometry(), "part.chunk.key", key, "part.chunk.value", value));
    return AppendProblem{.key = std::move(key.source),
                         .value = std::move(value.source),
                         .selection = store_.SelectTransfer(*transfer_, layer_, key.layout.tokens),
                         .accesses = {}};
  }

  const std::shared_ptr<const kv_cache::Transfer> transfer_;
  const SequenceHeader header_;
  kv_cache::KvCacheStore& store_;
  const std::shared_ptr<Scheduler> scheduler_;
  const base::Clock& clock_;
  std::int64_t layer_ = 0;  // of the next chunk; all have come: header_.layers
  std::int64_t token_ = 0;
};

absl::Status CheckSame(const char* field, std::int64_t given, std::int64_t needed) {
  if (given == needed) return absl::OkStatus();
  return InvalidField(absl::StrCat("part.header.", field), absl::StrCat("is ", given, "; the cache has ", needed));
}

}  // namespace

absl::Status CheckHeader(const kv_cache::Geometry& geometry, const SequenceHeader& header) {
  RIDGELINE_RETURN_IF_ERROR(CheckSame("layers", header.layers, geometry.layers));
  RIDGELINE_RETURN_IF_ERROR(CheckSame("kv_heads", header.kv_heads, geometry.kv_heads));
  RIDGELINE_RETURN_IF_ERROR(CheckSame("head_dim", header.head_dim, geometry.head_dim));
  RIDGELINE_RETURN_IF_ERROR(CheckSame("value_head_dim", header.value_head_dim, geometry.value_head_dim));
  if (header.data_type != geometry.data_type) {
    return InvalidField("part.header.data_type",
                        absl::StrCat("is ", Name(header.data_type), "; the cache's is ", Name(geometry.data_type)));
  }
  if (static_cast<std::int64_t>(header.lengths.size()) != header.layers) {
    return InvalidField("part.header.lengths", absl::StrCat("has ", header.lengths.size(), " entries; one for each of ",
                                                            header.layers, " layers is needed"));
  }
  for (const std::int64_t length : header.lengths) {
    if (length < 0) return InvalidField("part.header.lengths", absl::StrCat("has ", length, "; at least 0 is needed"));
  }
  return absl::OkStatus();
}

std::unique_ptr<SequenceWriter> MakeSequenceWriter(std::shared_ptr<const kv_cache::Transfer> transfer, SequenceHeader header,
                                                   kv_cache::KvCacheStore& store, std::shared_ptr<Scheduler> scheduler,
                                                   const base::Clock& clock) {
  return std::make_unique<SequenceWriterImpl>(std::move(transfer), std::move(header), store, std::move(scheduler), clock);
}

}  // namespace ridgeline::engine
