#pragma once

// The ledger's hash chain, and the walk that checks it with all that must hold between records.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "coordinator/store/store.h"

namespace shardline {

// SHA-256 over `previous` (empty before the first entry) and every field of `entry` but its hash:
// integers as 8 bytes little-endian, strings behind their length.
std::string LedgerHash(std::string_view previous, const LedgerEntry& entry);

// Takes every record in ledger order, then every session and open attempt, and says what is wrong:
// a gap, a broken chain, two records of one attempt, an epoch out of order, a record behind the
// session's outcome, more billed than worked, a session whose outcome is not its last record.
// Needs some bytes for each session, so a walk over 10 million takes about 1 GB.
class LedgerAudit {
 public:
  void AddRecord(const LedgerEntry& entry);
  // `outcome` is the sequence of the session's outcome; 0: it has none. `open`: its last epoch is.
  void AddSession(SessionId session, Epoch last, uint64_t outcome, bool open);
  // Something the caller found.
  void AddProblem(std::string problem);

  LedgerVerdict Verdict() const { return verdict_; }

 private:
  struct Last {
    Epoch epoch;
    AttemptState state = AttemptState::kOpen;
    uint64_t sequence = 0;
  };

  LedgerVerdict verdict_;
  uint64_t sequence_ = 0;
  absl::flat_hash_map<SessionId, Last> last_;
};

}  // namespace shardline
