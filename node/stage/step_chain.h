#pragma once

// The hash chain over what one stage sends another for one attempt.
//
// Sender and receiver each keep it; every row carries the sender's value, so that two neighbours
// whose steps are not the same steps find out with the next row, or when a link is resumed.
// H_0 is ChainStart; H_{k+1} = ChainNext(H_k, k, RowDigest of step k). A row of step k carries H_k:
// the chain over all the steps before it. Not a defence against forgers: see capability.h.

#include <cstddef>
#include <cstdint>

#include "base/id.h"
#include "node/stage/stage_bundle.h"

namespace shardline {

// Of nothing sent yet. `hop` is the receiver's place; the route's length means back at the head.
uint64_t ChainStart(const AttemptKey& attempt, uint32_t hop, const Recipe& recipe);

// After `step`, whose content has `digest`, was added to `chain`.
uint64_t ChainNext(uint64_t chain, StepIndex step, uint64_t digest);

// Of what a row says and carries: position, token count, flags, hop and `content`. Not of its
// budget and timings, which differ between two sendings of one step.
uint64_t RowDigest(const BundleRow& row, const void* content, size_t content_bytes);

}  // namespace shardline
