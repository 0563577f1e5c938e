#pragma once

// Text in columns, as kubectl draws it: two spaces between columns, nothing at the line's end.
// Also the small words for sizes and times that every table uses.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"

namespace shardline {

class Table {
 public:
  explicit Table(std::vector<std::string> headers) : headers_(std::move(headers)) {}

  // REQUIRES: as many cells as headers. An empty cell is drawn as "-".
  void AddRow(std::vector<std::string> cells);

  // Every line ends with a newline.
  std::string Render(bool with_headers) const;

 private:
  std::vector<std::string> headers_;
  std::vector<std::vector<std::string>> rows_;
};

// Columns that `text` takes on a terminal: code points, for what we draw.
size_t DisplayWidth(std::string_view text);

// "1.1 GiB", "640 MiB", "12 B".
std::string BytesText(uint64_t bytes);

// "3d", "2h", "9m", "12s", "350ms": the largest unit alone.
std::string AgeText(absl::Duration age);

}  // namespace shardline
