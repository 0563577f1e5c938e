#pragma once

// The drafts of one attempt: asks its proposers, checks what they say against what came, picks the
// one that promises most, and cuts its proposal where it stops paying.
//
// Each generated token is compared with what each proposer would have said of it, drafted or not:
// so a proposer's chances follow from the text alone, and a restart that replays the text drafts
// on as if nothing had been. Sans-IO, not thread-safe: on the shard's strand.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "node/rounds/draft_pricer.h"
#include "node/rounds/proposer.h"

namespace shardline {

class Drafter {
 public:
  Drafter(std::vector<std::unique_ptr<Proposer>> proposers, DraftPricer pricer, int32_t vocab_size);

  // More of the prompt, in order, before anything is accepted. Nothing is nothing.
  void Read(std::span<const int32_t> prompt);
  // Tokens that were generated, in order.
  void Accept(std::span<const int32_t> tokens);

  // The drafts for the next row of the attempt, in a round of `rows_planned` rows, its own token's
  // included; at most `drafts_max`. None is ever a token of `stops` or of no vocabulary, nor comes
  // after one.
  std::vector<int32_t> Propose(int32_t rows_planned, int32_t drafts_max,
                               std::span<const int32_t> stops) const;

  // The same for the row after the next one to come back, which has `said` behind its own token:
  // if all of `said` is right, and the token then drawn is the one that is expected. None when the
  // proposers say something else than `said`, or nothing behind it.
  std::vector<int32_t> Foresee(std::span<const int32_t> said, int32_t rows_planned,
                               int32_t drafts_max, std::span<const int32_t> stops) const;

  // As DraftPricer's.
  int32_t FreeRows(int32_t rows_planned) const { return pricer_.FreeRows(rows_planned); }
  void Observe(int32_t rows, absl::Duration took) { pricer_.Observe(rows, took); }

 private:
  static constexpr size_t kLevels = 16;

  // What a proposer said and what came, by the chance that it gave.
  struct Record {
    float hits = 0.0F;
    float tries = 0.0F;
  };
  struct Entry {
    std::unique_ptr<Proposer> proposer;
    std::array<Record, kLevels> records;
  };

  using Guess = absl::FunctionRef<std::vector<Draft>(const Proposer& proposer)>;

  // The best of what the proposers guess, at most `count` tokens, cut where it stops paying.
  std::vector<int32_t> Choose(Guess guess, int32_t count, int32_t rows_planned,
                              std::span<const int32_t> stops) const;
  static size_t LevelOf(float chance);
  static float Calibrated(const Entry& entry, float chance);

  const int32_t vocab_size_;
  std::vector<Entry> entries_;
  DraftPricer pricer_;
};

// Prompt lookup and a suffix index.
std::vector<std::unique_ptr<Proposer>> DefaultProposers();

}  // namespace shardline
