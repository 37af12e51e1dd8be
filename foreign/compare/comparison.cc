#include "foreign/compare/comparison.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/crc64.h"
#include "common/base/digest.h"
#include "common/resources/aligned_buffer.h"
#include "common/resources/memory.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/tensor/fingerprint.h"
#include "foreign/compare/difference.h"
#include "foreign/read/source/object_text.h"
#include "foreign/read/torch/torch_value.h"
#include "foreign/tensors/item_reader.h"
#include "foreign/tensors/tensor_reader.h"
#include "foreign/tensors/window_size.h"

namespace cairn {
namespace {

uint64_t BytesOfTensor(const WholeTensor& tensor) {
  return static_cast<uint64_t>(*ElementCount(tensor.plain.shape)) * static_cast<uint64_t>(BytesOf(tensor.plain.dtype));
}

// The tensors of one side, and those second names that the other side does not have in the same way.
absl::StatusOr<std::map<std::string, WholeTensor>> NamesOf(const ComparedCheckpoint& side,
                                                           const ComparedCheckpoint& other) {
  CAIRN_ASSIGN_OR_RETURN(std::vector<WholeTensor> chosen, ChooseTensors(*side.manifest, side.choice));
  std::map<std::string, WholeTensor> tensors;
  for (WholeTensor& tensor : chosen) {
    std::string name = tensor.plain.name;
    tensors.emplace(std::move(name), std::move(tensor));
  }
  const auto aliases = ChooseAliases(*other.manifest, other.choice);
  const std::set<std::pair<std::string, std::string>> theirs(aliases.begin(), aliases.end());
  for (const auto& alias : ChooseAliases(*side.manifest, side.choice)) {
    if (theirs.contains(alias)) continue;
    const auto target = tensors.find(alias.second);
    if (target != tensors.end()) tensors.emplace(alias.first, target->second);
  }
  return tensors;
}

ComparedItem Describe(const WholeTensor& tensor) {
  return {tensor.plain.dtype, tensor.plain.shape, BytesOfTensor(tensor), std::nullopt, ""};
}

// Returns the fingerprint that a manifest has of a tensor; nothing if it has none, or if a mapping makes the tensor.
std::optional<uint64_t> StoredFingerprint(const ComparedCheckpoint& side, const WholeTensor& tensor) {
  if (side.choice.mapping.has_value() || tensor.links.size() != 1) return std::nullopt;
  return side.manifest->fingerprint_of(static_cast<size_t>(tensor.links[0].source));
}

// A tensor that both sides have, while it is compared.
struct Pair {
  size_t name = 0;  // index of the answer
  const WholeTensor* first = nullptr;
  const WholeTensor* second = nullptr;
  // It is that of the bytes that were compared: see common/base/crc64.h.
  uint64_t remainder = 0;
  // Set at the first difference; before it the remainders of both sides are equal.
  std::optional<uint64_t> other;
};

class Comparer {
 public:
  Comparer(const ComparedCheckpoint& first, const ComparedCheckpoint& second, const CompareOptions& options)
      : first_(first),
        second_(second),
        options_(options),
        readers_{TensorReader(first.storage, *first.manifest, {options.threads, options.interrupted}),
                 TensorReader(second.storage, *second.manifest, {options.threads, options.interrupted})} {}

  absl::StatusOr<std::vector<ComparedName>> Run() {
    CAIRN_ASSIGN_OR_RETURN(const auto ours, NamesOf(first_, second_));
    CAIRN_ASSIGN_OR_RETURN(const auto theirs, NamesOf(second_, first_));
    for (const auto& [name, tensor] : ours) {
      const auto found = theirs.find(name);
      AddTensor(name, &tensor, found == theirs.end() ? nullptr : &found->second);
    }
    for (const auto& [name, tensor] : theirs) {
      if (!ours.contains(name)) AddTensor(name, nullptr, &tensor);
    }
    std::sort(names_.begin(), names_.end(),
              [](const ComparedName& a, const ComparedName& b) { return a.name < b.name; });
    MakePairs(ours, theirs);
    CAIRN_RETURN_IF_ERROR(CompareTensors());
    CAIRN_RETURN_IF_ERROR(CompareObjects());
    return std::move(names_);
  }

 private:
  void AddTensor(const std::string& name, const WholeTensor* ours, const WholeTensor* theirs) {
    ComparedName& added = names_.emplace_back();
    added.name = name;
    if (ours != nullptr) added.first = Describe(*ours);
    if (theirs != nullptr) added.second = Describe(*theirs);
    if (ours == nullptr) {
      added.difference = Difference::kOnlySecond;
    } else if (theirs == nullptr) {
      added.difference = Difference::kOnlyFirst;
    } else if (added.first->shape != added.second->shape) {
      added.difference = Difference::kShape;
    } else if (added.first->dtype != added.second->dtype) {
      added.difference = Difference::kDtype;
    }
  }

  void MakePairs(const std::map<std::string, WholeTensor>& ours, const std::map<std::string, WholeTensor>& theirs) {
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i].difference != Difference::kNone) continue;
      const WholeTensor &our = ours.at(names_[i].name), &their = theirs.at(names_[i].name);
      const std::optional<uint64_t> stored = StoredFingerprint(first_, our);
      if (stored.has_value() && stored == StoredFingerprint(second_, their)) {
        names_[i].first->fingerprint = names_[i].second->fingerprint = stored;
        names_[i].by_fingerprint = true;
        continue;
      }
      auto pair = std::make_unique<Pair>();
      pair->name = i;
      pair->first = &our;
      pair->second = &their;
      total_ += names_[i].first->bytes;
      largest_ = std::max(largest_, names_[i].first->bytes);
      pairs_.push_back(std::move(pair));
    }
  }

  absl::Status CompareTensors() {
    const uint64_t most = WindowBytes({.memory_bytes = options_.memory_bytes,
                                       .reader_bytes = 2 * readers_[0].buffer_bytes(),
                                       .largest_part = largest_,
                                       .most_bytes = total_});
    CAIRN_RETURN_IF_ERROR(WithMemory("for the windows of a comparison; lower --memory", [&] {
      for (AlignedBuffer& window : windows_) window = AlignedBuffer(most);
      return absl::OkStatus();
    }));
    uint64_t filled = 0;
    std::vector<TensorPart> parts;
    std::vector<Pair*> of_part;
    const auto flush = [&]() -> absl::Status {
      CAIRN_RETURN_IF_ERROR(CompareWindow(parts, of_part));
      done_ += filled;
      if (options_.progress) options_.progress(done_, total_);
      filled = 0;
      parts.clear();
      of_part.clear();
      return absl::OkStatus();
    };
    for (const auto& pair : pairs_) {
      const auto width = static_cast<uint64_t>(BytesOf(pair->first->plain.dtype));
      const int64_t elements = *ElementCount(pair->first->plain.shape);
      // A tensor that fits into a window is not cut, because a cut tensor that is permuted would be read in several
      // passes.
      if (filled > 0 && BytesOfTensor(*pair->first) > most - filled) CAIRN_RETURN_IF_ERROR(flush());
      for (int64_t begin = 0; begin < elements;) {
        const auto room = static_cast<int64_t>((most - filled) / width);
        const int64_t end = std::min(elements, begin + room);
        parts.push_back({pair->first, begin, end, filled});
        of_part.push_back(pair.get());
        filled += static_cast<uint64_t>(end - begin) * width;
        begin = end;
        if (begin < elements) CAIRN_RETURN_IF_ERROR(flush());
      }
    }
    if (filled > 0) CAIRN_RETURN_IF_ERROR(flush());
    for (const auto& pair : pairs_) {
      ComparedName& name = names_[pair->name];
      name.first->fingerprint = FingerprintFromParts(pair->remainder, name.first->bytes);
      name.second->fingerprint = FingerprintFromParts(pair->other.value_or(pair->remainder), name.second->bytes);
    }
    return absl::OkStatus();
  }

  absl::Status CompareWindow(const std::vector<TensorPart>& parts, const std::vector<Pair*>& of_part) {
    std::vector<TensorPart> theirs = parts;
    for (size_t i = 0; i < parts.size(); ++i) theirs[i].tensor = of_part[i]->second;
    CAIRN_RETURN_IF_ERROR(readers_[0].Read(parts, windows_[0].data()));
    CAIRN_RETURN_IF_ERROR(readers_[1].Read(theirs, windows_[1].data()));
    // A window has at most one part of each tensor, so two threads never work on the same tensor.
    return ForEachOnThreads("to compare tensors", parts.size(), options_.threads, [&](size_t i, int) {
      ComparePart(parts[i], *of_part[i]);
      return absl::OkStatus();
    });
  }

  void ComparePart(const TensorPart& part, Pair& pair) {
    const auto width = static_cast<size_t>(BytesOf(pair.first->plain.dtype));
    const auto elements = static_cast<size_t>(part.end - part.begin);
    const char *ours = windows_[0].data() + part.at, *theirs = windows_[1].data() + part.at;
    if (std::memcmp(ours, theirs, elements * width) != 0) {
      ComparedName& name = names_[pair.name];
      if (!pair.other.has_value()) pair.other = pair.remainder;
      const DType dtype = pair.first->plain.dtype;
      CountDifferences(ours, theirs, elements, width, static_cast<uint64_t>(part.begin), name, dtype);
    }
    pair.remainder = ExtendRemainder64(pair.remainder, ours, elements * width);
    if (pair.other.has_value()) pair.other = ExtendRemainder64(*pair.other, theirs, elements * width);
  }

  // Counts differing elements of `width` bytes; for an object these are its bytes.
  static void CountDifferences(const char* ours, const char* theirs, size_t elements, size_t width, uint64_t begin,
                               ComparedName& name, DType dtype = DType::kUnspecified) {
    for (size_t i = 0; i < elements; ++i) {
      const char *our = ours + i * width, *their = theirs + i * width;
      if (std::memcmp(our, their, width) == 0) continue;
      if (name.differing++ == 0) name.first_differing = begin + i;
      if (dtype == DType::kUnspecified) continue;
      const double apart = AbsoluteDifference(dtype, our, their);
      if (std::isnan(apart)) {
        ++name.nans;
      } else if (!(apart <= name.largest_difference.value_or(-1))) {
        name.largest_difference = apart;
        name.largest_at = begin + i;
      }
    }
    name.difference = Difference::kValues;
  }

  using ObjectKey = std::pair<std::string, std::optional<int>>;

  static std::map<ObjectKey, const ManifestObject*> ObjectsOf(const ComparedCheckpoint& side) {
    std::map<ObjectKey, const ManifestObject*> objects;
    for (const ManifestObject& object : side.manifest->objects) {
      if (IsChosen(side.choice, object.name)) objects.emplace(ObjectKey{object.name, object.rank}, &object);
    }
    return objects;
  }

  // Returns the object's canonical bytes; values of other programs are first encoded as Cairn would store them.
  // Versions and other programs may write one number in several ways (0.1, 0.10000000000000001), so both sides are
  // compared in canonical form.
  static absl::StatusOr<std::string> ReadObject(const Manifest& manifest, ItemReader& reader,
                                                const ManifestObject& object) {
    CAIRN_ASSIGN_OR_RETURN(std::string bytes, reader.Read(object));
    const ManifestFile& file = manifest.files[object.file];
    if (!file.imported()) return CanonicalObject(bytes);
    return EncodeTorchValue(bytes, absl::StrCat(file.name, ": '", object.name, "'"));
  }

  absl::Status CompareObjects() {
    const auto ours = ObjectsOf(first_), theirs = ObjectsOf(second_);
    std::set<ObjectKey> keys;
    for (const auto& [key, object] : ours) keys.insert(key);
    for (const auto& [key, object] : theirs) keys.insert(key);
    ItemReader our_reader(first_.storage, *first_.manifest), their_reader(second_.storage, *second_.manifest);
    for (const ObjectKey& key : keys) {
      if (options_.interrupted && options_.interrupted()) return MakeError(Reason::kInterrupted, "interrupted");
      const auto our = ours.find(key), their = theirs.find(key);
      ComparedName& name = names_.emplace_back();
      name.name = key.first;
      name.rank = key.second;
      name.object = true;
      if (our != ours.end()) name.first.emplace().bytes = our->second->bytes;
      if (their != theirs.end()) name.second.emplace().bytes = their->second->bytes;
      if (!name.first || !name.second) {
        name.difference = name.first ? Difference::kOnlyFirst : Difference::kOnlySecond;
        continue;
      }
      CAIRN_ASSIGN_OR_RETURN(std::string our_bytes, ReadObject(*first_.manifest, our_reader, *our->second));
      CAIRN_ASSIGN_OR_RETURN(std::string their_bytes, ReadObject(*second_.manifest, their_reader, *their->second));
      name.first->bytes = our_bytes.size();
      name.second->bytes = their_bytes.size();
      name.first->digest = Digest(our_bytes);
      name.second->digest = Digest(their_bytes);
      if (our_bytes == their_bytes) continue;
      const size_t both = std::min(our_bytes.size(), their_bytes.size());
      CountDifferences(our_bytes.data(), their_bytes.data(), both, 1, 0, name);
      if (name.differing == 0) name.first_differing = both;
      name.differing += std::max(our_bytes.size(), their_bytes.size()) - both;
    }
    return absl::OkStatus();
  }

  const ComparedCheckpoint& first_;
  const ComparedCheckpoint& second_;
  const CompareOptions& options_;
  TensorReader readers_[2];
  AlignedBuffer windows_[2];
  std::vector<ComparedName> names_;
  std::vector<std::unique_ptr<Pair>> pairs_;
  uint64_t largest_ = 0;
  uint64_t total_ = 0;
  uint64_t done_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<ComparedName>> CompareCheckpoints(const ComparedCheckpoint& first,
                                                             const ComparedCheckpoint& second,
                                                             const CompareOptions& options) {
  return Comparer(first, second, options).Run();
}

}  // namespace cairn
