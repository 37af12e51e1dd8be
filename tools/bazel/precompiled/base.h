// Most files of Cairn include these; see precompiled.bzl. No file includes this one by name.
#ifndef CAIRN_TOOLS_BAZEL_PRECOMPILED_BASE_H_
#define CAIRN_TOOLS_BAZEL_PRECOMPILED_BASE_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#endif  // CAIRN_TOOLS_BAZEL_PRECOMPILED_BASE_H_
