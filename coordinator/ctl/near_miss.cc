#include "coordinator/ctl/near_miss.h"

#include <algorithm>

namespace shardline {

int EditDistance(std::string_view a, std::string_view b) {
  // Optimal string alignment over three rolling rows of the usual matrix.
  const size_t width = b.size() + 1;
  std::vector<int> before(width), last(width), row(width);
  for (size_t j = 0; j < width; ++j) last[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j < width; ++j) {
      const int change = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string NearMiss(std::string_view typed, const std::vector<std::string>& words) {
  std::string best;
  int best_distance = typed.size() <= 3 ? 2 : 3;  // Short words: one slip; others: two.
  for (const std::string& word : words) {
    const int distance = EditDistance(typed, word);
    if (distance < best_distance) {
      best_distance = distance;
      best = word;
    }
  }
  return best;
}

}  // namespace shardline
