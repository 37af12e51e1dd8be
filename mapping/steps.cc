#include "mapping/steps.h"

#include "absl/strings/str_cat.h"

namespace cairn::aoa {
namespace {

bool TrailingWhole(const Shape& canonical, const Shape& offset, const Shape& shape) {
  for (size_t i = 1; i < canonical.size(); ++i) {
    if (offset[i] != 0 || shape[i] != canonical[i]) return false;
  }
  return true;
}

int64_t TrailingProduct(const Shape& canonical) {
  int64_t product = 1;
  for (size_t i = 2; i < canonical.size(); ++i) product *= canonical[i];
  return product;
}

}  // namespace

StepTable::StepTable() { chains_.emplace_back(); }

ChainId StepTable::Append(ChainId chain, const Step& step, const std::string& text) {
  if (chain == last_from_ && chains_[last_made_].texts.back() == text) return last_made_;
  auto key = std::pair(chain, text);
  const auto found = by_text_.find(key);
  if (found != by_text_.end()) {
    last_from_ = chain;
    return last_made_ = found->second;
  }
  Chain next = chains_[chain];
  switch (step.kind) {
    case Step::Kind::kCast:
      next.last_cast = step.dtype;
      break;
    case Step::Kind::kPermute:
      if (next.net.empty()) {
        next.net = step.axes;
      } else {
        Shape net(step.axes.size());
        for (size_t i = 0; i < net.size(); ++i) net[i] = next.net[step.axes[i]];
        next.net = net;
      }
      break;
    case Step::Kind::kReshape:
    case Step::Kind::kFlatten:
      next.reshapes = true;
      break;
  }
  // Permutations after a reshape compose in another way, so such chains are walked step by step.
  if (next.reshapes) next.net.clear();
  next.steps.push_back(step);
  total_steps_ += next.steps.size();
  next.texts.push_back(key.second);
  chains_.push_back(std::move(next));
  const auto id = static_cast<ChainId>(chains_.size() - 1);
  by_text_.emplace(std::move(key), id);
  last_from_ = chain;
  return last_made_ = id;
}

bool StepTable::MapBack(ChainId id, std::span<const int64_t> offset, std::span<const int64_t> shape,
                        Shape& source_offset, Shape& source_shape, std::string* why) const {
  const Chain& chain = chains_[id];
  source_offset.assign(offset.begin(), offset.end());
  source_shape.assign(shape.begin(), shape.end());
  if (!chain.reshapes) {
    for (size_t i = 0; i < chain.net.size(); ++i) {
      source_offset[chain.net[i]] = offset[i];
      source_shape[chain.net[i]] = shape[i];
    }
    return true;
  }
  for (size_t s = chain.steps.size(); s-- > 0;) {
    const Step& step = chain.steps[s];
    if (step.kind == Step::Kind::kPermute) {
      const Shape from_offset = source_offset, from_shape = source_shape;
      for (size_t i = 0; i < step.axes.size(); ++i) {
        source_offset[step.axes[i]] = from_offset[i];
        source_shape[step.axes[i]] = from_shape[i];
      }
    } else if (step.kind == Step::Kind::kReshape) {
      if (!TrailingWhole(step.canonical, source_offset, source_shape)) {
        *why = absl::StrCat("the part ", ToString(Box{source_offset, source_shape}), " of a tensor reshaped to ",
                            ShapeToString(step.canonical), " is not whole in its trailing dimensions");
        return false;
      }
      const int64_t width = step.canonical[1];
      source_offset = {source_offset[0] * width, 0};
      source_shape = {source_shape[0] * width, TrailingProduct(step.canonical)};
    } else if (step.kind == Step::Kind::kFlatten) {
      const int64_t width = step.canonical[1];
      if (width == 0 || source_offset[0] % width != 0 || source_shape[0] % width != 0 || source_offset[1] != 0 ||
          source_shape[1] != TrailingProduct(step.canonical)) {
        *why = absl::StrCat("the part ", ToString(Box{source_offset, source_shape}), " of a tensor flattened from ",
                            ShapeToString(step.canonical), " is not aligned to blocks of ", width, " whole rows");
        return false;
      }
      const int64_t first = source_offset[0] / width, count = source_shape[0] / width;
      source_offset.assign(step.canonical.size(), 0);
      source_shape = step.canonical;
      source_offset[0] = first;
      source_shape[0] = count;
    }
  }
  return true;
}

}  // namespace cairn::aoa
