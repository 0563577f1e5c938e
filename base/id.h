#pragma once

// Distinct types for identifiers, so that two of them cannot be swapped by accident.
//
// Id<Tag> is a 64-bit number, Name<Tag> a short string. Both compare and hash; neither converts
// to or from another type by itself.

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace shardline {

template <typename Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(uint64_t value) : value_(value) {}

  constexpr uint64_t value() const { return value_; }
  constexpr Id Next() const { return Id(value_ + 1); }

  friend constexpr bool operator==(Id, Id) = default;
  friend constexpr auto operator<=>(Id, Id) = default;

  template <typename H>
  friend H AbslHashValue(H h, Id id) {
    return H::combine(std::move(h), id.value_);
  }

 private:
  uint64_t value_ = 0;
};

template <typename Tag>
class Name {
 public:
  Name() = default;
  explicit Name(std::string value) : value_(std::move(value)) {}

  const std::string& value() const { return value_; }
  bool empty() const { return value_.empty(); }

  friend bool operator==(const Name&, const Name&) = default;
  friend auto operator<=>(const Name&, const Name&) = default;

  template <typename H>
  friend H AbslHashValue(H h, const Name& name) {
    return H::combine(std::move(h), name.value_);
  }

 private:
  std::string value_;
};

// One sequence being generated along a route. Issued in increasing order by the store.
using SessionId = Id<struct SessionTag>;
// Fencing number of a session's route: +1 at each re-route; older ones are refused.
using Epoch = Id<struct EpochTag>;
// One forward pass of a session over the route; dense from 0 within an attempt.
using StepIndex = Id<struct StepTag>;
// One life of a node process, issued by the coordinator at registration.
using Incarnation = Id<struct IncarnationTag>;
// One immutable plan: which node holds which layers of which model.
using PlanEpoch = Id<struct PlanEpochTag>;
// One reign of a coordinator; lower terms are refused.
using Term = Id<struct TermTag>;

// A node's stable identity, kept on its disk across restarts. Also its display name.
using NodeId = Name<struct NodeTag>;
// Architecture plus one set of weights: a content digest, "sha256:…". Never a path.
using ModelId = Name<struct ModelTag>;
// What must match for bits to be equal: back end class, weights, formats, spec version.
using NumericsId = Name<struct NumericsTag>;

// One try at a session on one route. The key of KV, of fences and of the work ledger.
struct AttemptKey {
  SessionId session;
  Epoch epoch;

  friend constexpr bool operator==(const AttemptKey&, const AttemptKey&) = default;
  friend constexpr auto operator<=>(const AttemptKey&, const AttemptKey&) = default;

  template <typename H>
  friend H AbslHashValue(H h, const AttemptKey& key) {
    return H::combine(std::move(h), key.session, key.epoch);
  }
};

// One step of one attempt.
struct StepKey {
  AttemptKey attempt;
  StepIndex step;

  friend constexpr bool operator==(const StepKey&, const StepKey&) = default;
  friend constexpr auto operator<=>(const StepKey&, const StepKey&) = default;

  template <typename H>
  friend H AbslHashValue(H h, const StepKey& key) {
    return H::combine(std::move(h), key.attempt, key.step);
  }
};

}  // namespace shardline
