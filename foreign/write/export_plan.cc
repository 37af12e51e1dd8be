#include "foreign/write/export_plan.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr size_t kNamesTold = 5;

absl::Status CheckDtypes(const std::vector<WholeTensor>& tensors, const ExportFormat& format) {
  std::string told;
  size_t count = 0;
  for (const WholeTensor& tensor : tensors) {
    if (format.knows(tensor.plain.dtype, tensor.plain.shape)) continue;
    if (++count <= kNamesTold) {
      absl::StrAppend(&told, count == 1 ? "" : ", ", tensor.plain.name, " (", std::string(NameOf(tensor.plain.dtype)),
                      tensor.plain.shape.empty() ? ", a scalar)" : ")");
    }
  }
  if (count == 0) return absl::OkStatus();
  if (count > kNamesTold) absl::StrAppend(&told, " and ", count - kNamesTold, " more");
  return MakeError(Reason::kUnsupported, absl::StrCat(std::string(format.library), " has no dtype for ", told),
                   {{"names", told}, {"next", "Leave these tensors out by --exclude, or cast them by a --mapping."}});
}

uint64_t BytesOf(const PlainTensor& tensor) {
  return static_cast<uint64_t>(*ElementCount(tensor.shape)) * static_cast<uint64_t>(BytesOf(tensor.dtype));
}

}  // namespace

uint64_t ExportFile::bytes() const {
  uint64_t bytes = data_bytes + after.size();
  for (const ExportPiece& piece : pieces) bytes += piece.before.size();
  return bytes;
}

bool NaturallyLess(std::string_view a, std::string_view b) {
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      size_t ei = i, ej = j;
      while (ei < a.size() && digit(a[ei])) ++ei;
      while (ej < b.size() && digit(b[ej])) ++ej;
      size_t si = i, sj = j;
      while (si + 1 < ei && a[si] == '0') ++si;
      while (sj + 1 < ej && b[sj] == '0') ++sj;
      if (ei - si != ej - sj) return ei - si < ej - sj;
      const int order = a.substr(si, ei - si).compare(b.substr(sj, ej - sj));
      if (order != 0) return order < 0;
      i = ei;
      j = ej;
    } else if (a[i] != b[j]) {
      return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[j]);
    } else {
      ++i;
      ++j;
    }
  }
  const size_t left_a = a.size() - i, left_b = b.size() - j;
  return left_a != left_b ? left_a < left_b : a < b;
}

absl::StatusOr<ExportPlan> DealOut(const Manifest& manifest, const ExportOptions& options, const ExportFormat& format) {
  ExportPlan plan;
  CAIRN_ASSIGN_OR_RETURN(plan.tensors, ChooseTensors(manifest, options.choice));
  if (plan.tensors.empty()) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("nothing to export: none of the ", manifest.tensors.size(), " tensors is left"),
                     {{"next", "Look at --include, --exclude and the mapping: they leave out every name."}});
  }
  CAIRN_RETURN_IF_ERROR(CheckDtypes(plan.tensors, format));
  const auto apart = [&](const WholeTensor& tensor) { return format.apart(tensor.plain.dtype); };
  std::sort(plan.tensors.begin(), plan.tensors.end(), [&](const WholeTensor& a, const WholeTensor& b) {
    return apart(a) != apart(b) ? apart(b) : NaturallyLess(a.plain.name, b.plain.name);
  });
  for (uint32_t i = 0; i < plan.tensors.size(); ++i) {
    const uint64_t bytes = BytesOf(plan.tensors[i].plain);
    if (plan.files.empty() || apart(plan.tensors[i]) != apart(plan.tensors[i - 1]) ||
        (plan.files.back().data_bytes > 0 && plan.files.back().data_bytes + bytes > options.max_shard_bytes)) {
      plan.files.emplace_back();
    }
    plan.files.back().pieces.push_back({"", i});
    plan.files.back().data_bytes += bytes;
    plan.total_bytes += bytes;
  }
  return plan;
}

absl::StatusOr<ExportPlan> MakeExportPlan(const Manifest& manifest, const ExportOptions& options) {
  const ExportFormat format = {"safetensors", CanBePlain, IsRecentPlainDtype};
  CAIRN_ASSIGN_OR_RETURN(ExportPlan plan, DealOut(manifest, options, format));
  PlainIndex index;
  index.total_size = plan.total_bytes;
  for (size_t f = 0; f < plan.files.size(); ++f) {
    ExportFile& file = plan.files[f];
    file.name = absl::StrFormat("model-%05d-of-%05d.safetensors", f + 1, plan.files.size());
    // Tensors with wide elements come first, so that all elements are aligned.
    std::stable_sort(file.pieces.begin(), file.pieces.end(), [&](const ExportPiece& a, const ExportPiece& b) {
      return BytesOf(plan.tensors[a.tensor].plain.dtype) > BytesOf(plan.tensors[b.tensor].plain.dtype);
    });
    std::vector<PlainTensor> plain;
    uint64_t begin = 0;
    for (const ExportPiece& piece : file.pieces) {
      PlainTensor& tensor = plan.tensors[piece.tensor].plain;
      tensor.begin = begin;
      tensor.end = begin += BytesOf(tensor);
      plain.push_back(tensor);
      index.weight_map.emplace_back(tensor.name, file.name);
    }
    file.pieces.front().before = RenderPlainHeader(plain);
  }
  std::sort(index.weight_map.begin(), index.weight_map.end());
  plan.index_name = std::string(kPlainIndexName);
  plan.index = RenderPlainIndex(index);
  return plan;
}

}  // namespace cairn
