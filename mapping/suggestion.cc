#include "mapping/suggestion.h"

#include <algorithm>
#include <cstdint>
#include <tuple>

namespace cairn::aoa {
namespace {

constexpr size_t kShown = 3;
constexpr int kMaxEdits = 4;
constexpr size_t kMaxNameBytes = 512;  // longer names are not compared, so that the work is bounded

// Returns true if both have as many dotted parts and differ in only one of them.
bool OnePartDiffers(std::string_view a, std::string_view b) {
  int differing = 0;
  while (true) {
    const size_t x = a.find('.'), y = b.find('.');
    if (a.substr(0, x) != b.substr(0, y)) ++differing;
    if (x == std::string_view::npos || y == std::string_view::npos) return x == y && differing == 1;
    a.remove_prefix(x + 1);
    b.remove_prefix(y + 1);
  }
}

}  // namespace

int EditDistance(std::string_view a, std::string_view b, int limit) {
  const int n = static_cast<int>(a.size()), m = static_cast<int>(b.size());
  if (std::abs(n - m) > limit) return limit + 1;
  // Three rows of the matrix of the optimal string alignment are kept, only within `limit` of the diagonal.
  const int far = limit + 1;
  std::vector<int> before(m + 1, far), above(m + 1, far), row(m + 1, far);
  for (int j = 0; j <= std::min(m, limit); ++j) above[j] = j;
  for (int i = 1; i <= n; ++i) {
    std::fill(row.begin(), row.end(), far);
    const int from = std::max(0, i - limit), to = std::min(m, i + limit);
    int best = far;
    for (int j = from; j <= to; ++j) {
      if (j == 0) {
        row[0] = i;
      } else {
        int edits = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1] ? 1 : 0)});
        if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) edits = std::min(edits, before[j - 2] + 1);
        row[j] = std::min(edits, far);
      }
      best = std::min(best, row[j]);
    }
    if (best > limit) return far;
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[m];
}

std::string Suggest(std::string_view wrong, const std::vector<Symbol>& candidates, const SymbolTable& symbols) {
  if (wrong.size() > kMaxNameBytes) return {};
  const int limit = std::clamp(static_cast<int>(wrong.size()) / 4, 1, kMaxEdits);
  std::vector<std::tuple<int, std::string_view>> near;
  for (Symbol candidate : candidates) {
    const std::string_view text = symbols.Text(candidate);
    if (text.size() > kMaxNameBytes || text == wrong) continue;
    int edits = EditDistance(wrong, text, limit);
    if (edits > limit) {
      if (wrong.find('.') == std::string_view::npos || !OnePartDiffers(wrong, text)) continue;
      edits = limit + 1;
    }
    near.emplace_back(edits, text);
    if (near.size() >= 4096) break;
  }
  if (near.empty()) return {};
  std::sort(near.begin(), near.end());
  near.erase(std::unique(near.begin(), near.end()), near.end());
  std::string text = "; did you mean ";
  const size_t shown = std::min(kShown, near.size());
  for (size_t i = 0; i < shown; ++i) {
    if (i > 0) text += i + 1 == shown ? " or " : ", ";
    ((text += '\'') += std::get<1>(near[i])) += '\'';
  }
  return text += '?';
}

}  // namespace cairn::aoa
