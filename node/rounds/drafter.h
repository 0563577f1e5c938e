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

#include "node/rounds/draft_pricer.h"
#include "node/rounds/proposer.h"

namespace shardline {

class Drafter {
 public:
  Drafter(std::vector<std::unique_ptr<Proposer>> proposers, DraftPricer pricer);

  // More of the prompt, in order, before anything is accepted. Nothing is nothing.
  void Read(std::span<const int32_t> prompt);
  // Tokens that were generated, in order.
  void Accept(std::span<const int32_t> tokens);

  // The drafts for the next row of the attempt, in a round of `rows_planned` rows, its own token's
  // included; at most `drafts_max`. None is ever a token of `stops`, nor comes after one.
  std::vector<int32_t> Propose(int32_t rows_planned, int32_t drafts_max,
                               std::span<const int32_t> stops) const;

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

  static size_t LevelOf(float chance);
  static float Calibrated(const Entry& entry, float chance);

  std::vector<Entry> entries_;
  DraftPricer pricer_;
};

// Prompt lookup and a suffix index.
std::vector<std::unique_ptr<Proposer>> DefaultProposers();

}  // namespace shardline
