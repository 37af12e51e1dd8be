// A small manifest with each kind of entry.
#ifndef CAIRN_COMMON_FORMAT_TESTING_SMALL_MANIFEST_H_
#define CAIRN_COMMON_FORMAT_TESTING_SMALL_MANIFEST_H_

#include <cstdlib>
#include <limits>

#include "common/format/manifest.h"

namespace cairn {

// Has a flat tensor, a tensor of boxes, shared and own objects, an alias, and two files.
inline Manifest SmallManifest() {
  Manifest manifest;
  manifest.job = "demo";
  manifest.step = 42;
  manifest.attempt = 2;
  manifest.request_id = "request";
  manifest.world_size = 2;
  manifest.commit_time = absl::FromUnixSeconds(1'700'000'000);
  manifest.writer = "cairn test";
  manifest.plan_digest = std::string(32, 'p');
  manifest.metrics = {{"accuracy", std::numeric_limits<double>::quiet_NaN()}, {"loss", 0.25}};
  manifest.alarms = {{std::string(alarm::kReplicasDiffer), "replicas of w differ"},
                     {std::string(alarm::kJump), "flat has moved"}};
  manifest.layout_digests = {std::string(32, 'a'), std::string(32, 'b')};
  manifest.rank_layout = {0, 1};
  manifest.nodes = {"n"};
  manifest.rank_node = {0, 0};
  manifest.tensors = {{"flat", DType::kFloat32, {2, 3}, 0, 2}, {"w", DType::kBfloat16, {4, 8}, 2, 2}};
  manifest.summaries.resize(2);
  manifest.summaries[0] = {0x0123456789abcdef, {1, 2, -3, 4, 5.5, 6.5, {1, 2, 3, 4, 5, 6, 7, -8}}};
  manifest.summaries[1].fingerprint_parts = 7;
  manifest.histories = {{3, 0, 1, 0.25f}, {0, 4, 0, 0}};
  manifest.object_histories = {{1, 0, 0, 0}, {0, 0, 0, 0}};
  manifest.files = {{"rank00000-bin00", 0, 4096, 0, 7}, {"rank00001-bin00", 1, 8192, 0, 8}};
  manifest.dims = {0, 0, 2, 3, 0, 4, 0, 0, 2, 3, 4, 6, 0, 0, 2, 8, 2, 0, 2, 8};
  manifest.shards = {{0, 0, 0, 11, 0, 0, 0, true},
                     {0, 1, 1, 12, 0, 0, 6, true},
                     {1, 0, 2, 13, 0, 0, 12, false},
                     {1, 1, 0, 14, 0, 0, 16, false}};
  manifest.objects = {{"rng", 0, 0, 1, 0, 4096, 5, 21},
                      {"rng", 1, 1, 2, 0, 4096, 6, 22},
                      {"scheduler", std::nullopt, 1, 3, 0, 8192, 4097, 23}};
  manifest.aliases = {{"head", "w"}};
  if (!manifest.PlaceItems().ok()) std::abort();
  return manifest;
}

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_TESTING_SMALL_MANIFEST_H_
