#include "coordinator/alarms/tensor_roles.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace cairn {
namespace {

constexpr std::array<std::string_view, 13> kMoments = {
    "exp_avg",    "exp_avg_sq", "max_exp_avg_sq", "exp_avg_sq_row", "exp_avg_sq_col", "exp_inf", "momentum_buffer",
    "square_avg", "grad_avg",   "acc_delta",      "moment1",        "moment2",        "momentum"};
constexpr std::array<std::string_view, 8> kSquared = {"exp_avg_sq",     "max_exp_avg_sq", "exp_avg_sq_row",
                                                      "exp_avg_sq_col", "exp_inf",        "square_avg",
                                                      "acc_delta",      "moment2"};
constexpr std::array<std::string_view, 4> kOptimizers = {"optimizer", "optim", "optimizers", "optimizer_state"};
constexpr std::array<std::string_view, 2> kModels = {"model", "module"};
// Models are wrapped in so many modules at most: "module.module.layers".
constexpr size_t kMostWrappers = 3;

template <size_t kCount>
bool Has(const std::array<std::string_view, kCount>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

using Parts = std::vector<absl::string_view>;

// Returns the part of a model that an optimizer of this name trains: "outer" of "outer_optimizer". Empty if its name
// says none; nothing if it is no optimizer's name.
std::optional<absl::string_view> TrainedBy(absl::string_view part) {
  for (const std::string_view word : kOptimizers) {
    absl::string_view whose = part;
    if (!absl::ConsumeSuffix(&whose, absl::string_view(word.data(), word.size()))) continue;
    if (whose.empty()) return whose;
    if (whose.size() > 1 && absl::ConsumeSuffix(&whose, "_")) return whose;
  }
  return std::nullopt;
}

bool IsOptimizer(absl::string_view part) { return TrainedBy(part).has_value(); }

std::string Join(const Parts& parts, size_t from) {
  return absl::StrJoin(parts.begin() + static_cast<std::ptrdiff_t>(from), parts.end(), ".");
}

}  // namespace

bool IsFloat(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBfloat16 || dtype == DType::kFloat32 ||
         dtype == DType::kFloat64 || dtype == DType::kFloat8E4m3fn || dtype == DType::kFloat8E5m2;
}

Follower FollowedBy(const std::string& name) {
  const Parts parts = absl::StrSplit(name, '.');
  if (parts.back() == "running_mean" || parts.back() == "running_var") return Follower::kStatistic;
  const bool average = std::ranges::any_of(parts, [](absl::string_view part) {
    return part == "ema" || absl::StartsWith(part, "ema_") || absl::EndsWith(part, "_ema");
  });
  return average ? Follower::kAverage : Follower::kNone;
}

std::string OwnerOf(const std::string& name, std::string_view key) {
  Parts parts = absl::StrSplit(name, '.');
  std::erase(parts, absl::string_view(key.data(), key.size()));
  return absl::StrJoin(parts, ".");
}

bool CountsBatches(const std::string& name) { return absl::EndsWith(name, ".num_batches_tracked"); }

bool IsSquared(std::string_view key) { return Has(kSquared, key); }

std::vector<TensorRole> RolesOf(const std::vector<StateSummary::Tensor>& tensors) {
  std::vector<TensorRole> roles(tensors.size());
  std::vector<Parts> owners(tensors.size());  // of moments and steps: the weight's name, if it is in the name
  std::vector<absl::string_view> models(tensors.size());  // and whose optimizer it is
  // The weights by their names, also without their first parts. -1: several have this end.
  struct Weight {
    int32_t number = -1;
    bool model = false;
  };
  absl::flat_hash_map<std::string, Weight> weights;
  for (size_t i = 0; i < tensors.size(); ++i) {
    Parts parts = absl::StrSplit(tensors[i].name, '.');
    const auto moment = std::find_if(parts.begin(), parts.end(), [](absl::string_view part) {
      return Has(kMoments, std::string_view(part.data(), part.size()));
    });
    const auto optimizer = std::ranges::find_if(parts, IsOptimizer);
    if (optimizer != parts.end()) models[i] = *TrainedBy(*optimizer);
    const bool in_optimizer = optimizer != parts.end();
    const bool step = in_optimizer && parts.back() == "step";
    if (moment != parts.end() || step) {
      roles[i].key = step ? "step" : *std::ranges::find(kMoments, std::string_view(moment->data(), moment->size()));
      roles[i].kind = step ? TensorRole::Kind::kStep : TensorRole::Kind::kMoment;
      parts.erase(step ? std::prev(parts.end()) : moment);
      const auto state = std::find(parts.begin(), parts.end(), "state");
      if (state != parts.end()) parts.erase(parts.begin(), std::next(state));
      while (!parts.empty() && IsOptimizer(parts[0])) parts.erase(parts.begin());
      owners[i] = std::move(parts);
    } else if (!in_optimizer && IsFloat(tensors[i].dtype)) {
      roles[i].kind = TensorRole::Kind::kWeight;
      const bool model = parts.size() > 1 && Has(kModels, std::string_view(parts[0].data(), parts[0].size()));
      for (size_t from = 0; from < parts.size() && from <= kMostWrappers; ++from) {
        const auto [place, is_new] = weights.try_emplace(Join(parts, from), Weight{static_cast<int32_t>(i), model});
        if (is_new) continue;
        // A moving average has the same names as the model.
        if (model == place->second.model) {
          place->second.number = -1;
        } else if (model) {
          place->second = {static_cast<int32_t>(i), true};
        }
      }
    }
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!models[i].empty()) {
      const auto found = weights.find(absl::StrCat(models[i], ".", Join(owners[i], 0)));
      if (found != weights.end()) roles[i].weight = found->second.number;
    }
    for (size_t from = 0; from < owners[i].size() && from <= kMostWrappers && roles[i].weight < 0; ++from) {
      const auto found = weights.find(Join(owners[i], from));
      if (found != weights.end()) roles[i].weight = found->second.number;
    }
  }
  return roles;
}

std::vector<bool> TrainedWeights(const std::vector<TensorRole>& roles) {
  std::vector<bool> trained(roles.size());
  for (const TensorRole& role : roles) {
    if (role.kind == TensorRole::Kind::kMoment && role.weight >= 0) trained[static_cast<size_t>(role.weight)] = true;
  }
  return trained;
}

}  // namespace cairn
