#pragma once

// The highest coordinator's term this node has obeyed, kept next to its id over restarts.
//
// A coordinator with a lower one works from an old ledger: it would issue again what was issued
// before. The node refuses it.

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/id.h"

namespace shardline {

class ObeyedTerm {
 public:
  // Reads `data_dir`/term-`node`; term 0 if there is none yet. With an empty `data_dir` it is kept
  // in memory only. kInvalidRequest, naming the file, for one that holds no number.
  static absl::StatusOr<ObeyedTerm> Open(const std::string& data_dir, const NodeId& node);

  Term value() const { return value_; }

  // Raises it, on the disk first. kStaleEpoch, naming both and the way out, for a term below the
  // one obeyed.
  absl::Status Obey(Term term);

 private:
  ObeyedTerm(std::string path, Term value) : path_(std::move(path)), value_(value) {}

  std::string path_;  // Empty: nothing is kept.
  Term value_;
};

}  // namespace shardline
