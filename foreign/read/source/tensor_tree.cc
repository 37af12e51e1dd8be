#include "foreign/read/source/tensor_tree.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/format/stored_item.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "foreign/read/source/foreign_manifest.h"
#include "foreign/read/source/named_tensors.h"

namespace cairn {
namespace {

constexpr int kMostDepth = 200;
constexpr size_t kMostTensors = 10'000'000;
constexpr size_t kMostLeftOut = 100'000;
// Containers may contain one another many times, so a small pickle may have very many names, and long ones. All names
// together have at most kMostGrowth bytes for each byte of the pickle, or kMostSmall bytes if that is more. Each name
// counts kVisitBytes more than its length.
constexpr uint64_t kMostGrowth = 256, kMostSmall = uint64_t{16} << 20, kVisitBytes = 16;

class TensorFinder {
 public:
  TensorFinder(const PickleDocument& document, const std::string& what, const TensorOf& tensor_of,
               std::vector<std::string>* left_out)
      : document_(document),
        what_(what),
        tensor_of_(tensor_of),
        left_out_(left_out),
        most_work_(kMostSmall + kMostGrowth * document.consumed()) {}

  absl::StatusOr<std::map<std::string, StridedTensor>> Find() {
    if (document_.root().kind() != PickleKind::kDict) {
      return MakeError(Reason::kUnsupported,
                       absl::StrCat(what_, " holds ", document_.Describe(document_.root()), ", not a dict"),
                       {{"file", what_}});
    }
    CAIRN_RETURN_IF_ERROR(Walk(document_.root(), "", 0));
    return std::move(tensors_);
  }

 private:
  absl::Status Bad(std::string_view problem) const {
    return MakeError(Reason::kBadForeignFile, absl::StrCat(what_, std::string(problem)), {{"file", what_}});
  }

  absl::Status Walk(PickleValue container, const std::string& path, int depth) {
    if (depth > kMostDepth) return Bad(" is nested too deeply, or in a circle");
    absl::Status status;
    if (container.kind() == PickleKind::kDict) {
      document_.ForEachPair(container, [&](PickleValue key, PickleValue value) {
        if (!status.ok()) return;
        const auto text = document_.Text(key);
        const auto number = document_.Int(key);
        if (text || number) {
          status = text ? Visit(value, path, *text, depth) : Visit(value, path, absl::StrCat(*number), depth);
        } else {
          const std::string described = document_.Describe(key);
          status = Count(path, described);
          if (status.ok()) LeaveOut(NameOf(path, described), value);
        }
      });
    } else {
      size_t position = 0;
      document_.ForEach(container, [&](PickleValue value) {
        if (status.ok()) status = Visit(value, path, absl::StrCat(position++), depth);
      });
    }
    return status;
  }

  static std::string NameOf(const std::string& path, std::string_view key) {
    return absl::StrCat(path, path.empty() ? "" : ".", std::string(key));
  }

  absl::Status Count(const std::string& path, std::string_view key) {
    work_ += kVisitBytes + path.size() + key.size();
    return work_ > most_work_ ? Bad(" holds the same parts too often") : absl::OkStatus();
  }

  absl::Status Visit(PickleValue value, const std::string& path, std::string_view key, int depth) {
    CAIRN_RETURN_IF_ERROR(Count(path, key));
    const std::string name = NameOf(path, key);
    if (value.kind() == PickleKind::kDict || value.kind() == PickleKind::kList) return Walk(value, name, depth + 1);
    const auto tensor = tensor_of_(value);
    if (!tensor.ok()) return Annotate(tensor.status(), absl::StrCat("'", name, "'"), {{"tensor", name}});
    if (!tensor->has_value()) {
      if (value.kind() == PickleKind::kTuple) return Walk(value, name, depth + 1);
      // The `state` of an optimizer is a defaultdict.
      if (const PickleObject* made = document_.Object(value, "collections", "defaultdict");
          made != nullptr && made->items.kind() == PickleKind::kDict) {
        return Walk(made->items, name, depth + 1);
      }
      LeaveOut(name, value);
      return absl::OkStatus();
    }
    CAIRN_RETURN_IF_ERROR(CheckName(name));
    if (tensors_.size() == kMostTensors) return Bad(" has too many tensors");
    if (!tensors_.try_emplace(name, **tensor).second) {
      return MakeError(Reason::kNameCollision, absl::StrCat(what_, " has two tensors named '", name, "'"),
                       {{"file", what_}, {"tensor", name}});
    }
    return absl::OkStatus();
  }

  void LeaveOut(const std::string& name, PickleValue value) {
    if (left_out_ == nullptr || left_out_->size() == kMostLeftOut || left_out_bytes_ > kMostSmall) return;
    left_out_->push_back(absl::StrCat(name, " (", document_.Describe(value), ")"));
    left_out_bytes_ += left_out_->back().size();
  }

  const PickleDocument& document_;
  const std::string& what_;
  const TensorOf& tensor_of_;
  std::vector<std::string>* const left_out_;
  const uint64_t most_work_;
  uint64_t work_ = 0;
  uint64_t left_out_bytes_ = 0;
  std::map<std::string, StridedTensor> tensors_;
};

}  // namespace

absl::StatusOr<Manifest> ReadTensorTree(std::string_view kind, const ForeignFile& file, const PickleDocument& document,
                                        const TensorOf& tensor_of, std::vector<std::string>* left_out) {
  CAIRN_ASSIGN_OR_RETURN(const auto tensors, TensorFinder(document, file.path(), tensor_of, left_out).Find());
  ForeignManifest manifest(kind);
  const uint32_t number = manifest.AddFile(file);
  NamedTensors named;
  for (const auto& [name, tensor] : tensors) {
    const absl::Status added = named.AddWhole(name, tensor, number);
    if (!added.ok()) return Annotate(added, file.path(), {{"file", file.path()}});
  }
  std::move(named).MoveTo(manifest);
  return std::move(manifest).Finish();
}

}  // namespace cairn
