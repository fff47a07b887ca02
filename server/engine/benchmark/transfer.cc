#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/base/notification.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/benchmarks.h"
#include "server/engine/benchmark/matrix_product.h"
#include "server/engine/benchmark/pieces.h"

namespace ridgeline::engine::benchmark {
namespace {

using device::Buffer;
using device::HostMemoryKind;
using device::Lane;
using measure::AwaitLane;

constexpr std::int64_t kLeastOverlappedBytes = 1 << 20;  // smaller copies are over before a product has begun
constexpr std::int64_t kProductSize = 2048;
constexpr std::int64_t kMostProducts = 1024;

HostMemoryKind KindOf(const std::string& memory) {
  if (memory == "pinned") return HostMemoryKind::kPinned;
  return memory == "registered" ? HostMemoryKind::kRegistered : HostMemoryKind::kPageable;
}

// A block of host memory and one of the device, and the copy between them.
struct Transfer {
  std::shared_ptr<void> host;
  Buffer on_device;
  std::int64_t size_bytes = 0;
  bool to_device = true;
  double pin_seconds = 0;  // what the host memory took to come by

  absl::Status Queue(Lane& lane) {
    return to_device ? lane.CopyFromHost(on_device, host.get(), size_bytes)
                     : lane.CopyToHost(host.get(), on_device, size_bytes);
  }

  absl::Status Check(Lane& lane) const {
    RIDGELINE_ASSIGN_OR_RETURN(const auto device_bytes, measure::ReadBack(lane, on_device, size_bytes));
    if (std::memcmp(device_bytes->data(), host.get(), size_bytes) == 0) return absl::OkStatus();
    return absl::InternalError("the bytes that arrived are not those that left");
  }
};

// Random words, and what is left of one; zeros where the device will write.
void FillHost(const Transfer& transfer, std::uint64_t seed) {
  auto* const bytes = static_cast<char*>(transfer.host.get());
  if (!transfer.to_device) {
    std::memset(bytes, 0, transfer.size_bytes);
    return;
  }
  std::mt19937_64 random(seed);
  for (std::int64_t at = 0; at < transfer.size_bytes; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(bytes + at, &word, std::min<std::int64_t>(sizeof(word), transfer.size_bytes - at));
  }
}

// Random bytes at the side that is read, and none of the other side's pages is touched for the first time by a copy.
absl::StatusOr<Transfer> MakeTransfer(const PointContext& context, Lane& lane, bool to_device) {
  Transfer transfer{
      .host = nullptr, .on_device = {}, .size_bytes = context.values.Integer("size_bytes"), .to_device = to_device};
  const auto begin = std::chrono::steady_clock::now();
  RIDGELINE_ASSIGN_OR_RETURN(transfer.host,
                             context.device.AllocateHostMemory(KindOf(context.values.Word("memory")), transfer.size_bytes));
  transfer.pin_seconds = absl::ToDoubleSeconds(absl::FromChrono(std::chrono::steady_clock::now() - begin));
  const std::int64_t elements = (transfer.size_bytes + 3) / 4;
  RIDGELINE_ASSIGN_OR_RETURN(transfer.on_device, lane.UploadRandom(kernels::DataType::kFloat32, elements, context.seed, 0, 1));
  FillHost(transfer, context.seed);
  return transfer;
}

// ---- One direction ----------------------------------------------------------------------------------------------------------

absl::StatusOr<Subject> MakeOneWay(const PointContext& context, bool to_device) {
  RIDGELINE_ASSIGN_OR_RETURN(Transfer made, MakeTransfer(context, context.lane, to_device));
  const auto transfer = std::make_shared<Transfer>(std::move(made));
  return Subject{.kernel = absl::StrCat("copy[", context.values.Word("memory"), "]"),
                 .bytes = transfer->size_bytes,
                 .queue = [transfer](Lane& lane) { return transfer->Queue(lane); },
                 .check = [transfer, &lane = context.lane] { return transfer->Check(lane); },
                 .figures =
                     [pin_seconds = transfer->pin_seconds](double /*seconds*/) {
                       return std::map<std::string, double>{{"allocation_seconds", pin_seconds}};
                     }};
}

// ---- Two lanes --------------------------------------------------------------------------------------------------------------

// Another lane of the device, which is the benchmark's alone.
absl::StatusOr<Lane*> OtherLane(const PointContext& context) {
  for (int i = 0; i < context.device.num_lanes(); ++i) {
    if (&context.device.lane(i) != &context.lane) return &context.device.lane(i);
  }
  return absl::UnimplementedError("the daemon has one lane (--lanes), so nothing runs beside a copy");
}

// Both run until their ends, whatever becomes of one. What a lane has been given starts when its completion is asked for: of
// both before either is waited for.
absl::Status AwaitBoth(Lane& a, Lane& b) {
  if (&a == &b) return AwaitLane(a);
  base::Notification b_done;
  absl::Status b_status;
  b.OnComplete([&](absl::Status status) {
    b_status = std::move(status);
    b_done.Notify();
  });
  absl::Status status = AwaitLane(a);
  b_done.Wait();
  status.Update(b_status);
  return status;
}

// By the host's clock: each lane has its own.
template <typename QueueOnBoth>
absl::StatusOr<absl::Duration> TimeBoth(Lane& a, Lane& b, std::int64_t repetitions, QueueOnBoth queue) {
  const auto begin = std::chrono::steady_clock::now();
  absl::Status status;
  for (std::int64_t i = 0; i < repetitions && status.ok(); ++i) {
    status = queue();
    status.Update(AwaitBoth(a, b));
  }
  RIDGELINE_RETURN_IF_ERROR(status);
  return absl::FromChrono(std::chrono::steady_clock::now() - begin);
}

absl::StatusOr<Subject> MakeBothWays(const PointContext& context) {
  RIDGELINE_ASSIGN_OR_RETURN(Lane* const other, OtherLane(context));
  absl::StatusOr<Transfer> to_device = MakeTransfer(context, context.lane, true);
  absl::StatusOr<Transfer> to_host = MakeTransfer(context, *other, false);
  RIDGELINE_RETURN_IF_ERROR(AwaitBoth(context.lane, *other));
  RIDGELINE_RETURN_IF_ERROR(to_device.status());
  RIDGELINE_RETURN_IF_ERROR(to_host.status());
  const auto there = std::make_shared<Transfer>(*std::move(to_device));
  const auto back = std::make_shared<Transfer>(*std::move(to_host));
  Lane& lane = context.lane;
  Subject subject{.kernel = absl::StrCat("copies in both directions[", context.values.Word("memory"), "]"),
                  .bytes = 2 * there->size_bytes};
  subject.run_and_time = [there, back, &lane, other](std::int64_t repetitions) {
    return TimeBoth(lane, *other, repetitions, [&]() -> absl::Status {
      RIDGELINE_RETURN_IF_ERROR(there->Queue(lane));
      return back->Queue(*other);
    });
  };
  subject.check = [there, back, &lane, other]() -> absl::Status {
    RIDGELINE_RETURN_IF_ERROR(there->Check(lane));
    return back->Check(*other);
  };
  return subject;
}

// A copy, and as many products as take about as long as it does, on the same lane or on another.
struct CopyAndProducts {
  Transfer transfer;
  Subject product;
  Lane* copy_lane;
  Lane* product_lane;
  std::int64_t num_products = 1;
  double copy_seconds = 0, products_seconds = 0;  // each alone

  absl::Status QueueProducts() {
    for (std::int64_t i = 0; i < num_products; ++i) RIDGELINE_RETURN_IF_ERROR(product.queue(*product_lane));
    return absl::OkStatus();
  }

  // The second time each runs counts. Products are timed in a batch, one behind the other as they will be.
  absl::Status Calibrate() {
    constexpr std::int64_t kBatch = 8;
    for (int round = 0; round < 2; ++round) {
      RIDGELINE_ASSIGN_OR_RETURN(const absl::Duration copy,
                                 measure::TimeOnLane(*copy_lane, [&] { return transfer.Queue(*copy_lane); }));
      num_products = kBatch;
      RIDGELINE_ASSIGN_OR_RETURN(const absl::Duration batch,
                                 measure::TimeOnLane(*product_lane, [&] { return QueueProducts(); }));
      const double ratio = kBatch * absl::FDivDuration(copy, std::max(batch, absl::Nanoseconds(1)));
      num_products = std::clamp<std::int64_t>(static_cast<std::int64_t>(ratio + 0.5), 1, kMostProducts);
      copy_seconds = absl::ToDoubleSeconds(copy);
    }
    RIDGELINE_ASSIGN_OR_RETURN(const absl::Duration all, measure::TimeOnLane(*product_lane, [&] { return QueueProducts(); }));
    products_seconds = absl::ToDoubleSeconds(all);
    return absl::OkStatus();
  }

  // 1: the shorter of the two is wholly hidden by the longer; 0: one after the other.
  double HiddenShare(double seconds) const {
    const double shorter = std::min(copy_seconds, products_seconds);
    return shorter > 0 ? std::clamp((copy_seconds + products_seconds - seconds) / shorter, 0.0, 1.0) : 0;
  }
};

absl::StatusOr<Subject> MakeCopyAndProducts(const PointContext& context, bool overlapped) {
  Lane* other = &context.lane;
  if (overlapped) {
    RIDGELINE_ASSIGN_OR_RETURN(other, OtherLane(context));
  }
  const auto both = std::make_shared<CopyAndProducts>();
  both->copy_lane = &context.lane;
  both->product_lane = other;
  absl::StatusOr<Transfer> transfer = MakeTransfer(context, context.lane, true);
  const PointContext product_context{context.device, *other, context.values, context.seed};
  auto product =
      MatrixProduct::Create(product_context, {kernels::DataType::kBFloat16}, {kProductSize, kProductSize, kProductSize});
  RIDGELINE_RETURN_IF_ERROR(AwaitBoth(context.lane, *other));
  RIDGELINE_RETURN_IF_ERROR(transfer.status());
  RIDGELINE_RETURN_IF_ERROR(product.status());
  both->transfer = *std::move(transfer);
  both->product = (*product)->MakeSubject(product_context);
  RIDGELINE_RETURN_IF_ERROR(both->Calibrate());
  Subject subject{
      .kernel = absl::StrCat("copy[", context.values.Word("memory"), "] and ", both->num_products, " ", both->product.kernel),
      .bytes = both->transfer.size_bytes};
  subject.run_and_time = [both](std::int64_t repetitions) {
    return TimeBoth(*both->copy_lane, *both->product_lane, repetitions, [&]() -> absl::Status {
      RIDGELINE_RETURN_IF_ERROR(both->transfer.Queue(*both->copy_lane));
      return both->QueueProducts();
    });
  };
  subject.check = [both]() -> absl::Status {
    RIDGELINE_RETURN_IF_ERROR(both->transfer.Check(*both->copy_lane));
    return both->product.check();
  };
  subject.figures = [both](double seconds) {
    return std::map<std::string, double>{{"copy_alone_seconds", both->copy_seconds},
                                         {"products_alone_seconds", both->products_seconds},
                                         {"hidden_share", both->HiddenShare(seconds)}};
  };
  return subject;
}

// ---- The points -------------------------------------------------------------------------------------------------------------

bool IsWithProducts(const std::string& pattern) { return pattern == "copy_then_products" || pattern == "copy_beside_products"; }

absl::StatusOr<Subject> Make(const PointContext& context) {
  const std::string& pattern = context.values.Word("pattern");
  if (pattern == "both_ways") return MakeBothWays(context);
  if (IsWithProducts(pattern)) return MakeCopyAndProducts(context, pattern == "copy_beside_products");
  return MakeOneWay(context, pattern == "to_device");
}

// Once it is registered, memory is as pinned: copies that run beside something need not show it again.
bool MakesSense(const AxisValues& values) {
  const std::string& pattern = values.Word("pattern");
  if (values.Word("memory") == "registered" && pattern != "to_device" && pattern != "to_host") return false;
  return !IsWithProducts(pattern) || values.Integer("size_bytes") >= kLeastOverlappedBytes;
}

Judgement Judge(absl::Span<const Point> points, const device::DeviceInfo& /*device*/) {
  std::int64_t largest = 0;
  for (const Point& point : points) largest = std::max(largest, point.values.Integer("size_bytes"));
  const auto at = [&](const std::string& pattern, const std::string& memory) {
    return Find(points, [=](const Point& point) {
      return point.values.Word("pattern") == pattern && point.values.Word("memory") == memory &&
             point.values.Integer("size_bytes") == largest;
    });
  };
  const Point* const pinned = at("to_device", "pinned");
  const Point* const pageable = at("to_device", "pageable");
  if (pinned == nullptr || pageable == nullptr) return NotEnoughPoints("copies to the device from pageable and pinned memory");
  const double gain = SpeedUp(*pageable, *pinned);
  const double of_device = pinned->report.roof_fraction;
  Judgement judgement{.verdict = VerdictOf(gain > 1.2 && of_device < 0.5),
                      .explanation = absl::StrFormat(
                          "%s to the device from pinned memory, %.3g times as fast as from pageable memory, and %.3g %% "
                          "of what the device's own memory gives",
                          RateText(pinned->report.bytes_per_second, "B"), gain, 100 * of_device),
                      .findings = {{"pinned_over_pageable", gain, "speed-up of the largest copy to the device"}}};
  if (const Point* const beside = at("copy_beside_products", "pinned"); beside != nullptr) {
    judgement.findings.push_back(
        {"hidden_share", beside->figures.at("hidden_share"), "of a pinned copy, behind matrix products on another stream"});
  }
  return judgement;
}

}  // namespace

Benchmark Transfer() {
  return {
      .name = "transfer",
      .claim =
          "The way between host and device is far narrower than the device's memory, and needs pinned host memory to reach "
          "its width and to run beside computing. Pageable: as any program has it. Pinned: taken from the driver. "
          "Registered: pinned afterwards. Copies in either direction, in both at once, and one with as many matrix products "
          "as take its time, on the same stream and on another.",
      .axes = {WordAxis("pattern", "what is copied, and what runs meanwhile",
                        {"to_device", "to_host", "both_ways", "copy_then_products", "copy_beside_products"}),
               WordAxis("memory", "how the driver knows the host memory", {"pageable", "pinned", "registered"}),
               IntegerAxis("size_bytes", "of a copy; with products at least 1 MiB", 1, std::int64_t{1} << 36,
                           {4096, 65536, 1 << 20, 16 << 20, 128 << 20})},
      .plot = {.x_axis = "size_bytes", .y = "bytes_per_second"},
      .unsupported_reason =
          [](const device::DeviceInfo& device) {
            return std::string(
                device.type == device::DeviceType::kCpu ? "the CPU device's memory is the host's: nothing is transferred" : "");
          },
      .makes_sense = &MakesSense,
      .make_subject = &Make,
      .judge = &Judge};
}

}  // namespace ridgeline::engine::benchmark
