// What this machine has of huge pages for shared memory. With them a first save into a staging buffer takes half the
// time (docs/benchmarks.md), and direct reads into it are not cut into requests of 1 MiB. Linux describes the files in
// Documentation/admin-guide/mm/transhuge.rst and hugetlbpage.rst.
#ifndef CAIRN_AGENT_STAGING_HUGE_PAGES_H_
#define CAIRN_AGENT_STAGING_HUGE_PAGES_H_

#include <cstdint>
#include <string>

namespace cairn {

// The size that x86-64 has, and arm64 with each size of its ordinary pages.
constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;

struct HugePages {
  // The kernel gives them by itself to shared memory that asks for them (MADV_HUGEPAGE), where it has some.
  bool by_itself = false;
  // Those that an administrator has set aside or allows to be taken (HugeTLB), and that nobody has reserved.
  uint64_t set_aside = 0;
};

// `root` is the prefix of all paths.
HugePages ReadHugePages(const std::string& root = "");

}  // namespace cairn

#endif  // CAIRN_AGENT_STAGING_HUGE_PAGES_H_
