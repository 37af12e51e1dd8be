#include "foreign/write/export_identity.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <vector>

namespace cairn {
namespace {

struct Export {
  Manifest manifest;
  ExportOptions options;
  std::string form = "huggingface";
};

Export Some() {
  Export made;
  made.manifest.job = "demo";
  made.manifest.step = 7;
  made.manifest.attempt = 1;
  made.manifest.files.push_back({.name = "rank00000-bin00", .header_crc32c = 5});
  made.manifest.shards.push_back({.crc32c = 11});
  made.manifest.objects.push_back({.name = "object", .crc32c = 12});
  made.options.choice.include = {"a*", "b*"};
  made.options.choice.mapping = aoa::Config{.statements = {"a -> b"}};
  return made;
}

std::string IdentityOf(const Export& made) { return ExportIdentity(made.manifest, made.options, made.form); }

TEST(ExportIdentityTest, Identity_SameExport_IsTheSame) {
  EXPECT_EQ(IdentityOf(Some()), IdentityOf(Some()));
  EXPECT_EQ(IdentityOf(Some()).size(), 32u);
  EXPECT_EQ(IdentityOf(Some()).find_first_not_of("0123456789abcdef"), std::string::npos);
}

TEST(ExportIdentityTest, Identity_AnythingThatChangesTheFiles_ChangesIt) {
  const std::vector<std::function<void(Export&)>> changes = {
      [](Export& each) { each.form = "dcp"; },
      [](Export& each) { each.manifest.job = "other"; },
      [](Export& each) { each.manifest.step = 8; },
      [](Export& each) { each.manifest.attempt = 2; },
      [](Export& each) { each.manifest.commit_time += absl::Nanoseconds(1); },
      [](Export& each) { each.manifest.plan_digest = "other"; },
      [](Export& each) { each.manifest.files[0].header_crc32c = 6; },
      [](Export& each) { each.manifest.shards[0].crc32c = 13; },
      [](Export& each) { each.manifest.objects[0].crc32c = 13; },
      [](Export& each) { each.options.max_shard_bytes = 1; },
      [](Export& each) { each.options.choice.include = {"a*b*"}; },
      [](Export& each) { each.options.choice.include = {"a*"}, each.options.choice.exclude = {"b*"}; },
      [](Export& each) { each.options.choice.mapping.reset(); },
      [](Export& each) { each.options.choice.mapping->statements = {"a -> c"}; },
      [](Export& each) { each.options.choice.mapping->reverse = true; },
      [](Export& each) { each.options.choice.mapping->legacy_qkv = true; },
      [](Export& each) { each.options.choice.mapping->allow_missing = true; },
  };
  std::set<std::string> identities = {IdentityOf(Some())};
  for (size_t i = 0; i < changes.size(); ++i) {
    Export changed = Some();
    changes[i](changed);
    EXPECT_TRUE(identities.insert(IdentityOf(changed)).second) << "change " << i;
  }
}

}  // namespace
}  // namespace cairn
