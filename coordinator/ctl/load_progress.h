#pragma once

// A model's load on the operator's screen: one line redrawn on a terminal, elsewhere a line
// every tenth of the way. It never goes back.

#include <iosfwd>
#include <string>

#include "absl/time/time.h"
#include "shardline/v1/admin.pb.h"

namespace shardline {

class LoadProgress {
 public:
  // `redraw`: `out` is a terminal of `columns` columns.
  LoadProgress(std::ostream* out, bool redraw, int columns)
      : out_(out), redraw_(redraw), columns_(columns) {}

  // `elapsed` since the start of the load.
  void Show(const v1::LoadModelEvent& event, absl::Duration elapsed);

  // Leaves the redrawn line.
  void Done();

 private:
  void ShowNote(const v1::LoadModelEvent& event);
  void ShowBytes(const std::string& model, uint64_t done, uint64_t total, absl::Duration elapsed);

  std::ostream* const out_;
  const bool redraw_;
  const int columns_;

  std::string last_note_;
  int last_percent_ = -1;
  bool on_line_ = false;
  absl::Duration started_;  // When the first byte was seen.
  uint64_t started_bytes_ = 0;
  uint64_t done_max_ = 0;
};

// "  45% ▕███████        ▏ 512 MiB/1.1 GiB  88 MiB/s  ETA 7s", `bar_columns` wide between the ends.
std::string ProgressLine(uint64_t done, uint64_t total, double bytes_per_s, int bar_columns);

}  // namespace shardline
