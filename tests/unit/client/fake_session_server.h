// KV caches without keys and values: sequences are lengths. On a socket of its own, with answers that a test chooses.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/grpcpp.h"
#include "ridgeline/v1/attention.grpc.pb.h"
#include "ridgeline/v1/kv_cache.grpc.pb.h"

namespace ridgeline::client {

class FakeSessionServer {
 public:
  // What one request of a stream asked for, and the length of its sequence's layer after appending.
  struct Step {
    v1::AttendRequest request;
    std::int64_t length = 0;
  };

  explicit FakeSessionServer(int layers) : layers_(layers), attention_(*this), kv_cache_(*this) {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&attention_);
    builder.RegisterService(&kv_cache_);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~FakeSessionServer() { server_->Shutdown(std::chrono::system_clock::now()); }

  const std::string& address() const { return address_; }

  // Set these before the first call. They get the number of the step or append, from 0, and may sleep.
  std::function<grpc::Status(std::int64_t)> before_step = [](std::int64_t) { return grpc::Status::OK; };
  std::function<grpc::Status(std::int64_t)> before_append = [](std::int64_t) { return grpc::Status::OK; };

  std::vector<Step> steps() {
    absl::MutexLock lock(&mutex_);
    return steps_;
  }
  std::vector<v1::AppendKeyValueRequest> appends() {
    absl::MutexLock lock(&mutex_);
    return appends_;
  }
  std::size_t num_sequences() {
    absl::MutexLock lock(&mutex_);
    return sequences_.size();
  }
  std::int64_t num_created() const { return num_created_; }
  std::int64_t num_truncated() const { return num_truncated_; }
  std::int64_t num_streams() const { return num_streams_; }

 private:
  grpc::Status Extend(const std::string& sequence, int layer, std::int64_t tokens, std::int64_t& length)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto found = sequences_.find(sequence);
    if (found == sequences_.end()) return grpc::Status(grpc::NOT_FOUND, sequence);
    length = found->second.at(layer) += tokens;
    return grpc::Status::OK;
  }

  grpc::Status TakeStep(const v1::AttendRequest& request, v1::AttendResponse& response) {
    grpc::Status status = before_step(num_steps_++);
    if (!status.ok()) return status;
    const v1::PagedKeyValue& paged = request.paged();
    absl::MutexLock lock(&mutex_);
    std::int64_t length = 0;
    status = Extend(paged.sequences(0), paged.layer(), paged.new_key().shape(1), length);
    if (!status.ok()) return status;
    steps_.push_back({request, length});
    response.mutable_report()->set_batch_requests(4);
    response.mutable_report()->mutable_kernel_time()->set_nanos(8'000'000);
    return status;
  }

  // Answers each request before it reads the next; the first failure ends the stream.
  class Stream final : public grpc::ServerBidiReactor<v1::AttendRequest, v1::AttendResponse> {
   public:
    explicit Stream(FakeSessionServer& fake) : fake_(fake) { StartRead(&request_); }
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::OK);
      response_.Clear();
      const grpc::Status status = fake_.TakeStep(request_, response_);
      if (!status.ok()) return Finish(status);
      StartWrite(&response_);
    }
    void OnWriteDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::CANCELLED);
      StartRead(&request_);
    }
    void OnDone() override { delete this; }

   private:
    FakeSessionServer& fake_;
    v1::AttendRequest request_;
    v1::AttendResponse response_;
  };

  struct Attention final : v1::AttentionService::WithCallbackMethod_AttendStream<v1::AttentionService::Service> {
    explicit Attention(FakeSessionServer& fake) : server(fake) {}
    grpc::ServerBidiReactor<v1::AttendRequest, v1::AttendResponse>* AttendStream(grpc::CallbackServerContext*) override {
      ++server.num_streams_;
      return new Stream(server);
    }
    FakeSessionServer& server;
  };

  struct KvCache final : v1::KvCacheService::Service {
    explicit KvCache(FakeSessionServer& fake) : server(fake) {}
    grpc::Status CreateSequence(grpc::ServerContext*, const v1::CreateSequenceRequest* request,
                                v1::Sequence* response) override {
      response->set_name(absl::StrCat(request->parent(), "/sequences/s", server.num_created_++));
      absl::MutexLock lock(&server.mutex_);
      server.sequences_[response->name()].resize(server.layers_);
      return grpc::Status::OK;
    }
    grpc::Status DeleteSequence(grpc::ServerContext*, const v1::DeleteSequenceRequest* request,
                                google::protobuf::Empty*) override {
      absl::MutexLock lock(&server.mutex_);
      return server.sequences_.erase(request->name()) == 1 ? grpc::Status::OK : grpc::Status(grpc::NOT_FOUND, request->name());
    }
    grpc::Status AppendKeyValue(grpc::ServerContext*, const v1::AppendKeyValueRequest* request,
                                v1::AppendKeyValueResponse* response) override {
      const grpc::Status status = server.before_append(server.num_appends_++);
      if (!status.ok()) return status;
      absl::MutexLock lock(&server.mutex_);
      server.appends_.push_back(*request);
      std::int64_t length = 0;
      const grpc::Status extended = server.Extend(request->sequences(0), request->layer(), request->key().shape(1), length);
      response->add_lengths(length);
      return extended;
    }
    grpc::Status TruncateSequence(grpc::ServerContext*, const v1::TruncateSequenceRequest* request, v1::Sequence*) override {
      ++server.num_truncated_;
      absl::MutexLock lock(&server.mutex_);
      const auto found = server.sequences_.find(request->name());
      if (found == server.sequences_.end()) return grpc::Status(grpc::NOT_FOUND, request->name());
      for (std::int64_t& length : found->second) length = std::min(length, request->length());
      return grpc::Status::OK;
    }
    FakeSessionServer& server;
  };

  const int layers_;
  std::atomic<std::int64_t> num_created_ = 0, num_truncated_ = 0, num_streams_ = 0, num_steps_ = 0, num_appends_ = 0;
  absl::Mutex mutex_;
  std::map<std::string, std::vector<std::int64_t>> sequences_ ABSL_GUARDED_BY(mutex_);  // lengths, [layer]
  std::vector<Step> steps_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::AppendKeyValueRequest> appends_ ABSL_GUARDED_BY(mutex_);
  Attention attention_;
  KvCache kv_cache_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace ridgeline::client
