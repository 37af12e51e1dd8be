#include "foreign/write/export_identity.h"

#include "common/base/digest.h"
#include "common/base/version.h"

namespace cairn {
namespace {

constexpr size_t kDigits = 32;

void AddAll(const std::vector<std::string>& texts, Digester& digester) {
  digester.Add(texts.size());
  for (const std::string& text : texts) digester.Add(text);
}

// If a step was deleted and saved again, its checksums or its time differ.
void AddSource(const Manifest& manifest, Digester& digester) {
  digester.Add(manifest.job).Add(static_cast<uint64_t>(manifest.step)).Add(manifest.attempt);
  digester.Add(static_cast<uint64_t>(absl::ToUnixNanos(manifest.commit_time))).Add(manifest.plan_digest);
  for (const ManifestFile& file : manifest.files) digester.Add(file.name).Add(file.header_crc32c);
  for (const ManifestShard& shard : manifest.shards) digester.Add(shard.crc32c);
  for (const ManifestObject& object : manifest.objects) digester.Add(object.crc32c);
}

}  // namespace

std::string ExportIdentity(const Manifest& manifest, const ExportOptions& options, std::string_view form) {
  Digester digester;
  digester.Add(kVersion).Add(form).Add(options.max_shard_bytes);
  AddSource(manifest, digester);
  AddAll(options.choice.include, digester);
  AddAll(options.choice.exclude, digester);
  digester.Add(options.choice.mapping.has_value() ? 1 : 0);
  if (const auto& mapping = options.choice.mapping) {
    AddAll(mapping->statements, digester);
    for (const bool flag : {mapping->reverse, mapping->legacy_qkv, mapping->allow_missing}) digester.Add(flag ? 1 : 0);
  }
  return DigestHex(digester.Finish()).substr(0, kDigits);
}

}  // namespace cairn
