#include "coordinator/ctl/table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"

namespace shardline {

void Table::AddRow(std::vector<std::string> cells) {
  SL_CHECK(cells.size() == headers_.size());
  for (std::string& cell : cells) {
    if (cell.empty()) cell = "-";
  }
  rows_.push_back(std::move(cells));
}

std::string Table::Render(bool with_headers) const {
  std::vector<const std::vector<std::string>*> lines;
  if (with_headers) lines.push_back(&headers_);
  for (const std::vector<std::string>& row : rows_) lines.push_back(&row);

  std::vector<size_t> widths(headers_.size(), 0);
  for (const std::vector<std::string>* line : lines) {
    for (size_t i = 0; i < line->size(); ++i) {
      widths[i] = std::max(widths[i], DisplayWidth((*line)[i]));
    }
  }
  std::string text;
  for (const std::vector<std::string>* line : lines) {
    for (size_t i = 0; i < line->size(); ++i) {
      absl::StrAppend(&text, (*line)[i]);
      if (i + 1 < line->size()) text.append(widths[i] - DisplayWidth((*line)[i]) + 2, ' ');
    }
    text += '\n';
  }
  return text;
}

size_t DisplayWidth(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;  // Not a UTF-8 continuation byte.
  }));
}

std::string BytesText(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0 || value >= 100) return absl::StrFormat("%.0f %s", value, kUnits[unit]);
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string AgeText(absl::Duration age) {
  if (age >= absl::Hours(48)) return absl::StrCat(age / absl::Hours(24), "d");
  if (age >= absl::Hours(2)) return absl::StrCat(age / absl::Hours(1), "h");
  if (age >= absl::Minutes(2)) return absl::StrCat(age / absl::Minutes(1), "m");
  if (age >= absl::Seconds(1)) return absl::StrCat(age / absl::Seconds(1), "s");
  return absl::StrCat(age / absl::Milliseconds(1), "ms");
}

}  // namespace shardline
