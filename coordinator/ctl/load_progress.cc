#include "coordinator/ctl/load_progress.h"

#include <algorithm>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "coordinator/ctl/table.h"

namespace shardline {
namespace {

constexpr int kBarColumnsMax = 30;
constexpr int kPercentStep = 10;  // Between two lines where nothing is redrawn.

}  // namespace

std::string ProgressLine(uint64_t done, uint64_t total, double bytes_per_s, int bar_columns) {
  const double part =
      total == 0 ? 0 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const int full = static_cast<int>(part * bar_columns);
  std::string line = absl::StrFormat("%3d%% ▕", static_cast<int>(part * 100));
  for (int i = 0; i < bar_columns; ++i) absl::StrAppend(&line, i < full ? "█" : " ");
  absl::StrAppend(&line, "▏ ", BytesText(done), "/", BytesText(total));
  if (bytes_per_s > 0) {
    absl::StrAppend(&line, "  ", BytesText(static_cast<uint64_t>(bytes_per_s)), "/s");
    if (done < total) {
      absl::StrAppend(&line, "  ETA ",
                      AgeText(absl::Seconds(static_cast<double>(total - done) / bytes_per_s)));
    }
  }
  return line;
}

void LoadProgress::Show(const v1::LoadModelEvent& event, absl::Duration elapsed) {
  uint64_t done = 0;
  uint64_t total = 0;
  for (const v1::ShardSummary& shard : event.shards()) {
    total += shard.bytes();
    done += std::min(shard.bytes(), shard.bytes_done());
  }
  // A node that starts again loads again; the bar waits until it has caught up.
  done = std::max(done, done_max_);
  done_max_ = done;
  // What comes after the last byte is said below the bar, all else above it.
  const bool is_loaded = total > 0 && done == total;
  if (is_loaded) ShowBytes(event.model().name(), done, total, elapsed);
  ShowNote(event);
  if (total > 0 && !is_loaded) ShowBytes(event.model().name(), done, total, elapsed);
}

void LoadProgress::ShowNote(const v1::LoadModelEvent& event) {
  if (event.note() == last_note_ || event.note().empty()) return;
  last_note_ = event.note();
  Done();
  *out_ << event.model().name() << ": " << absl::StrReplaceAll(event.note(), {{"\n", "\n  "}})
        << "\n";
}

void LoadProgress::ShowBytes(const std::string& model, uint64_t done, uint64_t total,
                             absl::Duration elapsed) {
  const int percent = static_cast<int>(100 * done / total);
  if (percent == 100 && last_percent_ == 100) return;
  if (started_bytes_ == 0 && done > 0) {
    started_ = elapsed;
    started_bytes_ = done;
  }
  const double seconds = absl::ToDoubleSeconds(elapsed - started_);
  const double rate = seconds > 0.2 && done > started_bytes_
                          ? static_cast<double>(done - started_bytes_) / seconds
                          : 0;
  if (redraw_) {
    const int bar = std::clamp(columns_ - 55, 10, kBarColumnsMax);
    *out_ << "\r\033[K" << ProgressLine(done, total, rate, bar) << std::flush;
    on_line_ = true;
    last_percent_ = percent;
  } else if (last_percent_ < 0 || percent / kPercentStep > last_percent_ / kPercentStep) {
    *out_ << model << ": " << percent << "% of " << BytesText(total) << "\n";
    last_percent_ = percent;
  }
}

void LoadProgress::Done() {
  if (on_line_) *out_ << "\n";
  on_line_ = false;
}

}  // namespace shardline
