#include "foreign/read/deepspeed/universal_parameters.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr char kWeight[] = "fp32";

absl::Status Bad(const std::string& path, const std::string& problem) {
  return MakeError(Reason::kBadForeignFile, absl::StrCat(path, ": ", problem), {{"file", path}});
}

// The description of a trained weight in the model's files.
struct Trained {
  Shape shape;       // of the first slice that has elements
  std::string path;  // of the file
};

std::map<std::string, Trained> TrainedOf(const DeepSpeedParts& read) {
  std::map<std::string, Trained> trained;
  for (const DeepSpeedPart& part : read.parts) {
    for (const ZeroGroup& group : part.models[0].content.groups) {
      for (const ZeroGroup::Parameter& parameter : group.parameters) {
        // DeepSpeed writes no file for a weight without elements.
        if (ElementCount(parameter.shape) == 0) continue;
        trained.try_emplace(parameter.name, Trained{parameter.shape, part.models[0].path});
      }
    }
  }
  return trained;
}

}  // namespace

UniversalPath ParseUniversalPath(const std::string& path) {
  const size_t begin = path.find('/') + 1, slash = path.rfind('/');
  UniversalPath parsed;
  if (slash >= begin) parsed.weight = path.substr(begin, slash - begin);
  const size_t key = std::max(begin, slash + 1);
  parsed.key = path.substr(key, path.size() - key - std::string_view(".pt").size());
  return parsed;
}

absl::Status CheckUniversalParameters(const DeepSpeedFiles& names, const DeepSpeedParts& read) {
  if (std::any_of(read.parts.begin(), read.parts.end(),
                  [](const DeepSpeedPart& part) { return part.models[0].content.has_experts; })) {
    return absl::OkStatus();
  }
  std::map<std::string, std::map<std::string, size_t>> found;  // numbers of files, by weight and key
  for (size_t i = 0; i < names.parameters.size(); ++i) {
    const UniversalPath path = ParseUniversalPath(names.parameters[i]);
    if (!path.weight.empty()) found[path.weight][path.key] = i;
  }
  const std::map<std::string, Trained> trained = TrainedOf(read);
  std::set<std::string> keys = {kWeight};
  for (const auto& [weight, files] : found) {
    if (!trained.contains(weight)) continue;
    for (const auto& [key, number] : files) keys.insert(key);
  }
  for (const auto& [weight, said] : trained) {
    const std::map<std::string, size_t>& files = found[weight];
    for (const std::string& key : keys) {
      if (files.contains(key)) continue;
      const std::string path = absl::StrCat(read.directory, "/zero/", weight, "/", key, ".pt");
      return MakeError(Reason::kFileMissing,
                       absl::StrCat(path, " is missing, and ", said.path, " names '", weight, "' as a trained weight"),
                       {{"file", path}, {"tensor", weight}});
    }
    const std::optional<StridedTensor>& tensor = read.parameters[files.at(kWeight)];
    const std::string path = absl::StrCat(read.directory, "/", names.parameters[files.at(kWeight)]);
    if (!tensor) return Bad(path, "holds no tensor");
    const auto elements = ElementCount(tensor->shape);
    // Stage 3 stores weights flat.
    if (read.slices == 1 && tensor->shape != said.shape &&
        (tensor->shape.size() != 1 || elements != ElementCount(said.shape))) {
      return Bad(path, absl::StrCat("has the shape ", ShapeToString(tensor->shape), ", and ", said.path, " says ",
                                    ShapeToString(said.shape)));
    }
    for (const auto& [key, number] : files) {
      const std::optional<StridedTensor>& state = read.parameters[number];
      if (!state || state->shape.empty() || ElementCount(state->shape) == elements) continue;
      return Bad(absl::StrCat(read.directory, "/", names.parameters[number]),
                 absl::StrCat("has the shape ", ShapeToString(state->shape), ", and the weight ",
                              ShapeToString(tensor->shape)));
    }
  }
  return absl::OkStatus();
}

}  // namespace cairn
