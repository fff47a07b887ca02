#include "server/engine/sequence_reader.h"

#include <algorithm>
#include <utility>

#include "server/engine/gather_work.h"

namespace ridgeline::engine {
namespace {

constexpr std::int64_t kChunkBytes = std::int64_t{2} << 20;  // of keys and values together; at least one token

SequenceHeader HeaderOf(const kv_cache::Transfer& transfer) {
  const kv_cache::Geometry& geometry = transfer.geometry();
  return {.layers = geometry.layers,
          .kv_heads = geometry.kv_heads,
          .head_dim = geometry.head_dim,
          .value_head_dim = geometry.value_head_dim,
          .data_type = geometry.data_type,
          .lengths = transfer.info().lengths};
}

class SequenceReaderImpl final : public SequenceReader {
 public:
  SequenceReaderImpl(std::shared_ptr<const kv_cache::Transfer> transfer, kv_cache::KvCacheStore& store,
                     std::shared_ptr<Scheduler> scheduler, const base::Clock& clock)
      : transfer_(std::move(transfer)),
        store_(store),
        scheduler_(std::move(scheduler)),
        clock_(clock),
        header_(HeaderOf(*transfer_)) {}

  const SequenceHeader& header() const override { return header_; }

  std::shared_ptr<Call> Next(CallContext context, Done done) override {
    while (layer_ < header_.layers && token_ == header_.lengths[layer_]) {
      ++layer_;
      token_ = 0;
    }
    if (layer_ == header_.layers) {
      done(std::nullopt);
      return nullptr;
    }
    const std::int64_t token_bytes =
        header_.kv_heads * (header_.head_dim + header_.value_head_dim) * kernels::ElementBytes(header_.data_type);
    const std::int64_t tokens =
        std::min(std::max<std::int64_t>(1, kChunkBytes / token_bytes), header_.lengths[layer_] - token_);
    GatherProblem problem{
        .selection = store_.SelectTransfer(*transfer_, layer_, /*append_tokens=*/0), .token_begin = token_, .tokens = tokens};
    WorkTraits traits{.client = std::move(context.caller.client),
                      .device_bytes = tokens * token_bytes,
                      .deadline = context.deadline,
                      .tokens = tokens,
                      .origin = std::move(context.origin),
                      .operation = "ExportSequence"};
    auto advance_and_answer = [this, tokens, done = std::move(done)](absl::StatusOr<OutgoingChunk> chunk) mutable {
      if (!chunk.ok()) return done(chunk.status());
      token_ += tokens;
      done(std::optional(*std::move(chunk)));
    };
    return scheduler_->Submit(std::make_unique<GatherWork>(std::move(problem), store_, std::move(advance_and_answer)),
                              std::move(traits), clock_.Now());
  }

 private:
  const std::shared_ptr<const kv_cache::Transfer> transfer_;
  kv_cache::KvCacheStore& store_;
  const std::shared_ptr<Scheduler> scheduler_;
  const base::Clock& clock_;
  const SequenceHeader header_;
  std::int64_t layer_ = 0;  // of the next chunk
  std::int64_t token_ = 0;
};

}  // namespace

std::unique_ptr<SequenceReader> MakeSequenceReader(std::shared_ptr<const kv_cache::Transfer> transfer,
                                                   kv_cache::KvCacheStore& store, std::shared_ptr<Scheduler> scheduler,
                                                   const base::Clock& clock) {
  return std::make_unique<SequenceReaderImpl>(std::move(transfer), store, std::move(scheduler), clock);
}

}  // namespace ridgeline::engine
