#include "foreign/read/deepspeed/zero_partition.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

absl::Status Bad(const std::string& problem) { return MakeError(Reason::kBadForeignFile, problem); }

absl::StatusOr<int64_t> ElementsOf(const ZeroGroup::Parameter& parameter) {
  const auto elements = ElementCount(parameter.shape);
  if (elements && parameter.padding >= 0) return *elements;
  return Bad(absl::StrCat("'", parameter.name, "' has the shape ", ShapeToString(parameter.shape)));
}

absl::Status CheckLengths(const std::vector<ZeroGroup>& groups, const ZeroLengths& lengths) {
  for (const std::vector<int64_t>& rank : lengths) {
    if (rank.size() == groups.size()) continue;
    return Bad(absl::StrCat("a rank has ", rank.size(), " flat tensors for ", groups.size(), " groups of parameters"));
  }
  return lengths.empty() ? Bad("no rank has flat tensors") : absl::OkStatus();
}

// Walks through the vector of one group, part by part.
class VectorParts {
 public:
  VectorParts(uint32_t group, const ZeroLengths& lengths) : group_(group), lengths_(lengths) {}

  // Appends the next `elements` of the vector as the elements of a parameter. Returns false if the vector has fewer.
  bool Take(int64_t elements, std::vector<ZeroFragment>& fragments) {
    for (int64_t taken = 0; taken < elements;) {
      const int64_t part = Next();
      if (part == 0) return false;
      const int64_t count = std::min(part, elements - taken);
      fragments.push_back({rank_, group_, begin_, {taken, taken + count}});
      begin_ += count;
      taken += count;
    }
    return true;
  }
  bool Skip(int64_t elements) {
    while (elements > 0) {
      const int64_t part = Next();
      if (part == 0) return false;
      const int64_t count = std::min(part, elements);
      begin_ += count;
      elements -= count;
    }
    return true;
  }
  int64_t left() {
    int64_t left = Next();
    for (size_t rank = rank_ + size_t{1}; rank < lengths_.size(); ++rank) left += lengths_[rank][group_];
    return left;
  }

 private:
  // Returns the number of remaining elements in the current part; 0 behind the last part.
  int64_t Next() {
    while (rank_ < lengths_.size() && begin_ == lengths_[rank_][group_]) {
      ++rank_;
      begin_ = 0;
    }
    return rank_ < lengths_.size() ? lengths_[rank_][group_] - begin_ : 0;
  }

  const uint32_t group_;
  const ZeroLengths& lengths_;
  uint32_t rank_ = 0;
  int64_t begin_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<ZeroParameter>> PartitionVectors(const std::vector<ZeroGroup>& groups,
                                                            const ZeroLengths& lengths) {
  CAIRN_RETURN_IF_ERROR(CheckLengths(groups, lengths));
  std::vector<ZeroParameter> result;
  for (size_t g = 0; g < groups.size(); ++g) {
    VectorParts parts(static_cast<uint32_t>(g), lengths);
    for (const ZeroGroup::Parameter& parameter : groups[g].parameters) {
      CAIRN_ASSIGN_OR_RETURN(const int64_t elements, ElementsOf(parameter));
      ZeroParameter& added = result.emplace_back(ZeroParameter{parameter.name, parameter.shape, {}});
      // The padding behind the last parameter may be missing.
      const bool last = &parameter == &groups[g].parameters.back();
      if (!parts.Take(elements, added.fragments) || (!parts.Skip(parameter.padding) && !last)) {
        return Bad(absl::StrCat("the flat tensors of group ", g, " end before the end of '", parameter.name, "'"));
      }
    }
    // The vector is padded so that each rank's part is a multiple of two elements long.
    const auto most = static_cast<int64_t>(2 * lengths.size());
    if (const int64_t left = parts.left(); left >= most) {
      return Bad(absl::StrCat("the flat tensors of group ", g, " have ", left,
                              " elements more than its parameters, and padding has less than ", most));
    }
  }
  return result;
}

absl::StatusOr<std::vector<ZeroParameter>> PartitionParameters(const std::vector<ZeroGroup>& groups,
                                                               const ZeroLengths& lengths) {
  CAIRN_RETURN_IF_ERROR(CheckLengths(groups, lengths));
  for (size_t rank = 1; rank < lengths.size(); ++rank) {
    if (lengths[rank] != lengths[0]) {
      return Bad(absl::StrCat("the flat tensors of rank ", rank, " have other lengths than those of rank 0"));
    }
  }
  const auto ranks = static_cast<int64_t>(lengths.size());
  std::vector<ZeroParameter> result;
  uint32_t group = 0;  // with `begin`: the place of the next parameter in each rank's tensors
  int64_t begin = 0;
  for (const ZeroGroup& each : groups) {
    for (const ZeroGroup::Parameter& parameter : each.parameters) {
      CAIRN_ASSIGN_OR_RETURN(const int64_t elements, ElementsOf(parameter));
      ZeroParameter& added = result.emplace_back(ZeroParameter{parameter.name, parameter.shape, {}});
      const int64_t part = elements / ranks + (elements % ranks != 0 ? 1 : 0);
      // The part of every rank lies at the same place in its tensors.
      std::vector<ZeroFragment> pieces;
      for (int64_t taken = 0; taken < part;) {
        while (group < lengths[0].size() && begin == lengths[0][group]) {
          ++group;
          begin = 0;
        }
        if (group == lengths[0].size()) {
          return Bad(absl::StrCat("the flat tensors of each rank end before the end of '", parameter.name, "'"));
        }
        const int64_t count = std::min(lengths[0][group] - begin, part - taken);
        pieces.push_back({0, group, begin, {taken, taken + count}});
        begin += count;
        taken += count;
      }
      for (int64_t rank = 0; rank < ranks && rank * part < elements; ++rank) {
        for (const ZeroFragment& piece : pieces) {
          const int64_t first = rank * part + piece.range.begin;
          const int64_t end = std::min(elements, rank * part + piece.range.end);
          if (first < end)
            added.fragments.push_back({static_cast<uint32_t>(rank), piece.group, piece.begin, {first, end}});
        }
      }
    }
  }
  const int64_t all = std::accumulate(lengths[0].begin(), lengths[0].end(), int64_t{0});
  const int64_t used = std::accumulate(lengths[0].begin(), lengths[0].begin() + group, begin);
  if (used != all) {
    return Bad(absl::StrCat("the flat tensors of each rank have ", all, " elements, and the parameters take ", used));
  }
  return result;
}

}  // namespace cairn
