#include "planner/testing/model.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>

#include "absl/strings/str_cat.h"

namespace cairn::testing {
namespace {

// Returns part i of n of a size as [begin, end): torch's chunks (the last ones may be empty), or near-equal parts.
FlatRange PartOf(int64_t size, int64_t i, int64_t n, bool chunks) {
  if (chunks) {
    const int64_t step = (size + n - 1) / n;
    return {std::min(size, i * step), std::min(size, (i + 1) * step)};
  }
  return {size * i / n, size * (i + 1) / n};
}

Box CutAxis(const Box& box, size_t axis, FlatRange part) {
  Box cut = box;
  cut.offset[axis] += part.begin;
  cut.shape[axis] = part.size();
  return cut;
}

// Appends random boxes that tile `box`.
void Shatter(Random& random, const Box& box, int depth, std::vector<Box>& boxes) {
  std::vector<size_t> axes;
  for (size_t d = 0; d < box.ndim(); ++d) {
    if (box.shape[d] > 1) axes.push_back(d);
  }
  if (depth == 0 || axes.empty() || Below(random, 5) == 0) return boxes.push_back(box);
  const size_t axis = axes[static_cast<size_t>(Below(random, static_cast<int64_t>(axes.size())))];
  const int64_t cut = 1 + Below(random, box.shape[axis] - 1);
  Shatter(random, CutAxis(box, axis, {0, cut}), depth - 1, boxes);
  Shatter(random, CutAxis(box, axis, {cut, box.shape[axis]}), depth - 1, boxes);
}

}  // namespace

Model MakeModel(uint64_t seed, uint64_t keep) {
  Random random(seed);
  Model model;
  model.layers = 1 + static_cast<int>(Below(random, 4));
  model.tied = Below(random, 3) == 0;
  const int64_t count = 1 + Below(random, 8);
  for (int64_t i = 0; i < count; ++i) {
    Model::Tensor tensor;
    tensor.layer = static_cast<int>(Below(random, model.layers));
    tensor.expert = Below(random, 4) == 0 ? static_cast<int>(Below(random, 4)) : -1;
    tensor.optimizer = Below(random, 2) == 0;
    tensor.name = absl::StrCat(tensor.optimizer ? "optimizer." : "model.", "layers.", tensor.layer, ".t", i);
    const auto dtypes = DTypeTable();
    tensor.dtype = dtypes[static_cast<size_t>(Below(random, static_cast<int64_t>(dtypes.size())))].dtype;
    const int64_t ndim = Below(random, 6);
    for (int64_t d = 0; d < ndim; ++d) {
      const int64_t longest = ndim <= 1 ? 60 : ndim == 2 ? 16 : ndim == 3 ? 8 : 5;
      tensor.shape.push_back(Below(random, 25) == 0 ? 0 : 1 + Below(random, longest));
    }
    if (Below(random, 1000) == 0) tensor.shape = {700 + Below(random, 700), 3, 400};  // above a block of checksums
    if (keep >> i & 1) model.tensors.push_back(tensor);
  }
  if (Below(random, 2) == 0) model.objects.push_back("scheduler");
  if (Below(random, 3) == 0) model.per_rank_objects.push_back("rng");
  return model;
}

std::vector<LayoutDescription> MakeLayouts(const Model& model, uint64_t seed) {
  Random random(seed);
  const int64_t pp = 1 + Below(random, 3), tp = 1 + Below(random, 3), dp = 1 + Below(random, 4);
  const int64_t virtual_stages = 1 + Below(random, 2);
  const int64_t world = pp * tp * dp;
  const int64_t zero = Below(random, 4);  // 0: none, 1: flat buffers, 2 and 3: the first axis, 3 also parameters
  const bool chunks = Below(random, 2) == 0;
  const bool padded = Below(random, 2) == 0;  // flat buffers are padded to a multiple
  std::vector<LayoutDescription> layouts(static_cast<size_t>(world));
  const auto rank_of = [&](int64_t p, int64_t d, int64_t t) { return static_cast<size_t>((p * dp + d) * tp + t); };
  const auto add = [&](size_t rank, const Model::Tensor& tensor, const ShardDescription& shard) {
    auto& tensors = layouts[rank].tensors;
    auto found = std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name == tensor.name; });
    if (found == tensors.end()) {
      tensors.push_back({tensor.name, tensor.dtype, tensor.shape, {}});
      found = tensors.end() - 1;
    }
    found->shards.push_back(shard);
  };
  std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<const Model::Tensor*, Box>>> buffers;  // by (p, t)
  for (const Model::Tensor& tensor : model.tensors) {
    const int64_t stage = tensor.layer / virtual_stages % pp;
    const Box whole = WholeBox(tensor.shape);
    if (Below(random, 6) == 0) {  // irregular cuts, in rank order or not, some of them flat
      std::vector<Box> boxes;
      Shatter(random, whole, 4, boxes);
      for (const Box& box : boxes) {
        const int64_t copies = 1 + Below(random, 2);
        std::set<size_t> ranks;
        for (int64_t c = 0; c < copies; ++c) ranks.insert(static_cast<size_t>(Below(random, world)));
        if (!box.empty() && Below(random, 3) == 0) {
          const int64_t cut = Below(random, box.size() + 1);
          for (size_t rank : ranks) {
            add(rank, tensor, {box, FlatRange{0, cut}});
            add((rank + 1) % static_cast<size_t>(world), tensor, {box, FlatRange{cut, box.size()}});
          }
        } else {
          for (size_t rank : ranks) add(rank, tensor, {box, std::nullopt});
        }
      }
      continue;
    }
    std::vector<size_t> axes;
    for (size_t d = 0; d < tensor.shape.size(); ++d) axes.push_back(d);
    const bool cut = !axes.empty() && Below(random, 4) != 0;
    const size_t axis = axes.empty() ? 0 : axes[static_cast<size_t>(Below(random, static_cast<int64_t>(axes.size())))];
    for (int64_t t = 0; t < tp; ++t) {
      const Box box = cut ? CutAxis(whole, axis, PartOf(tensor.shape[axis], t, tp, chunks)) : whole;
      if (zero == 1 && tensor.optimizer) {
        // A tensor that is not cut lies at other places in the other buffers, so one rank of the group keeps its state.
        if (!cut && t > 0) continue;
        buffers[{stage, t}].push_back({&tensor, box});
        continue;
      }
      for (int64_t d = 0; d < dp; ++d) {
        if (tensor.expert >= 0 && tensor.expert % dp != d) continue;
        Box own = box;
        if (!axes.empty() && tensor.expert < 0 && (zero == 3 || (zero == 2 && tensor.optimizer))) {
          own = CutAxis(box, 0, PartOf(box.shape[0], d, dp, chunks));
        }
        add(rank_of(stage, d, t), tensor, {own, std::nullopt});
      }
    }
  }
  for (const auto& [place, pieces] : buffers) {
    int64_t size = 0;
    for (const auto& [tensor, box] : pieces) size += box.size();
    const int64_t buffer = padded ? (size + 7) / 8 * 8 + 8 : size;
    for (int64_t d = 0; d < dp; ++d) {
      const FlatRange mine = PartOf(buffer, d, dp, true);
      int64_t begin = 0;
      for (const auto& [tensor, box] : pieces) {
        const int64_t first = std::max(mine.begin, begin), last = std::min(mine.end, begin + box.size());
        if (first < last) {
          add(rank_of(place.first, d, place.second), *tensor, {box, FlatRange{first - begin, last - begin}});
        } else if (box.empty() && d == 0) {
          add(rank_of(place.first, d, place.second), *tensor, {box, FlatRange{0, 0}});
        }
        begin += box.size();
      }
    }
  }
  for (size_t rank = 0; rank < layouts.size(); ++rank) {
    for (const std::string& object : model.objects) layouts[rank].objects.push_back({object, 4096, false});
    for (const std::string& object : model.per_rank_objects) layouts[rank].objects.push_back({object, 8192, true});
    if (model.tied && !model.tensors.empty() && Below(random, 2) == 0) {
      layouts[rank].aliases.emplace_back("head", model.tensors[0].name);
    }
    Canonicalize(layouts[rank]);
    // A rank that drew the same shard twice holds it once.
    for (TensorDescription& tensor : layouts[rank].tensors) {
      tensor.shards.erase(std::unique(tensor.shards.begin(), tensor.shards.end()), tensor.shards.end());
    }
  }
  return layouts;
}

std::vector<std::byte> Content(const Model::Tensor& tensor) {
  uint64_t state = std::hash<std::string>()(tensor.name) | 1;
  std::vector<std::byte> bytes(static_cast<size_t>(*ElementCount(tensor.shape) * BytesOf(tensor.dtype)));
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

std::map<std::string, std::vector<std::byte>> ContentsOf(const Model& model) {
  std::map<std::string, std::vector<std::byte>> contents;
  for (const Model::Tensor& tensor : model.tensors) contents[tensor.name] = Content(tensor);
  return contents;
}

std::vector<std::byte> ContentOf(const ShardDescription& shard, const Shape& global_shape, int element,
                                 const std::vector<std::byte>& whole) {
  std::vector<std::byte> out;
  if (shard.box.empty()) return out;
  Shape index(global_shape.size(), 0);
  int64_t flat = 0;
  while (true) {
    if (!shard.flat || (flat >= shard.flat->begin && flat < shard.flat->end)) {
      int64_t at = 0;
      for (size_t d = 0; d < index.size(); ++d) at = at * global_shape[d] + shard.box.offset[d] + index[d];
      const auto* from = whole.data() + at * element;
      out.insert(out.end(), from, from + element);
    }
    ++flat;
    size_t d = index.size();
    while (d > 0 && ++index[d - 1] == shard.box.shape[d - 1]) index[--d] = 0;
    if (d == 0) return out;
  }
}

}  // namespace cairn::testing
