#include "corpus/io/xz_library.h"

#include <dlfcn.h>

#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"

namespace cairn::corpus::xz {
namespace {

constexpr char kName[] = "liblzma.so.5";

// Returns what is missing; empty if all is there.
std::string Fill(Library& library) {
  void* const opened = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) return dlerror();
  std::string missing;
  const auto resolve = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(opened, symbol));
    if (function == nullptr && missing.empty()) missing = absl::StrCat(kName, " has no ", symbol);
  };
  resolve(library.stream_decoder, "lzma_stream_decoder");
  resolve(library.code, "lzma_code");
  resolve(library.end, "lzma_end");
  return missing;
}

}  // namespace

absl::StatusOr<const Library*> OpenLibrary() {
  static Library library;
  static const std::string missing = Fill(library);
  if (missing.empty()) return &library;
  return MakeError(Reason::kUnsupported, absl::StrCat("liblzma 5, which reads .xz files, cannot be opened: ", missing),
                   {{"next", "Install it (Debian: liblzma5; Red Hat: xz-libs), or decompress the file first."}});
}

}  // namespace cairn::corpus::xz
