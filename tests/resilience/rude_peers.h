// Peers that a server on a network meets sooner or later. What they get does not matter, as long as others get theirs.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/resilience/tally.h"

namespace ridgeline::resilience {

// Streams whose client sends requests with large answers and never reads.
void NeverRead(const std::string& address, const std::atomic<bool>& ends);

// How HTTP/2 connections and others begin: nothing, parts of a preface, a setting or a request, noise.
std::vector<std::string> Beginnings();

// Connects, sends the beginning and waits: true if the server closes the connection within `patience`.
bool IsClosedAfter(const std::string& beginning, const std::string& address, absl::Duration patience);

// TCP connections that send one of these beginnings and stay so for a while; some then close and some reset.
void SayHalf(const std::string& address, std::uint64_t seed, const std::atomic<bool>& ends);

// Connections in bursts: some closed at once, some with one call each, which has to be answered.
void Storm(const std::string& address, Tally& tally, const std::atomic<bool>& ends);

}  // namespace ridgeline::resilience
