#include "node/obeyed_term.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/failure.h"

namespace shardline {
namespace {

absl::Status Invalid(const std::string& message) {
  return MakeFailure(FailureKind::kInvalidRequest, message);
}

// Whole or not at all, whatever happens meanwhile.
absl::Status ReplaceFile(const std::string& path, const std::string& text) {
  const std::string draft = path + ".new";
  const int file = open(draft.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  if (file < 0) return Invalid(absl::StrCat("data-dir: cannot write ", draft));
  const bool written = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       fsync(file) == 0;
  close(file);
  if (!written || rename(draft.c_str(), path.c_str()) != 0) {
    return Invalid(absl::StrCat("data-dir: cannot write ", path));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ObeyedTerm> ObeyedTerm::Open(const std::string& data_dir, const NodeId& node) {
  if (data_dir.empty()) return ObeyedTerm("", Term());
  std::error_code error;
  std::filesystem::create_directories(data_dir, error);
  if (error) return Invalid(absl::StrCat("data-dir: ", data_dir, ": ", error.message()));
  const std::string path = absl::StrCat(data_dir, "/term-", node.value());
  if (!std::filesystem::exists(path, error)) {
    if (error) return Invalid(absl::StrCat("data-dir: ", path, ": ", error.message()));
    return ObeyedTerm(path, Term());
  }
  std::string text;
  uint64_t value = 0;
  if (!(std::ifstream(path) >> text) || !absl::SimpleAtoi(text, &value)) {
    return Invalid(absl::StrCat("data-dir: ", path,
                                " holds no term; remove it if this node's coordinator is sure "
                                "to have the newest ledger"));
  }
  return ObeyedTerm(path, Term(value));
}

absl::Status ObeyedTerm::Obey(Term term) {
  if (term == value_) return absl::OkStatus();
  if (term < value_) {
    const std::string moved =
        path_.empty() ? "" : absl::StrCat(", or remove ", path_, " if this is another cluster");
    return MakeFailure(FailureKind::kStaleEpoch,
                       absl::StrCat("the coordinator has term ", term.value(),
                                    ", this node has obeyed term ", value_.value(),
                                    ": its ledger is out of date; start it with --restore", moved));
  }
  if (!path_.empty()) {
    const absl::Status kept = ReplaceFile(path_, absl::StrCat(term.value(), "\n"));
    if (!kept.ok()) return kept;
  }
  value_ = term;
  return absl::OkStatus();
}

}  // namespace shardline
