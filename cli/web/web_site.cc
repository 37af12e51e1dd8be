#include "cli/web/web_site.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "cli/base/command.h"
#include "common/rpc/token.h"
#include "common/status/reason.h"

namespace cairn::cli {
namespace {

struct File {
  std::string_view name;
  std::string_view text;
};

// The files beside this one that make the page.
constexpr File kFiles[] = {
#include "cli/web/files.inc"
};

constexpr char kQuestions[] = "/api/";

// A Content-Security-Policy: the page may load, run and request nothing from other servers.
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";

std::string_view TypeOf(std::string_view name) {
  if (name.ends_with(".mjs")) return "text/javascript; charset=utf-8";
  return name.ends_with(".css") ? "text/css; charset=utf-8" : "text/html; charset=utf-8";
}

// Returns the file of the page at this path, or null.
const File* FileAt(std::string_view path) {
  const std::string_view name = path == "/" ? "index.html" : path.substr(std::min<size_t>(path.size(), 1));
  const auto* file =
      std::find_if(std::begin(kFiles), std::end(kFiles), [&](const File& each) { return each.name == name; });
  return file == std::end(kFiles) ? nullptr : file;
}

HttpAnswer Json(int status, const nlohmann::ordered_json& json) {
  // JsonText accepts names that are not UTF-8, so they cannot break the page.
  return {status, "application/json", JsonText(json, -1), {}};
}

HttpAnswer Refusal(int status, const absl::Status& error) {
  nlohmann::ordered_json json = ErrorToJson(error);
  json["next"] = NextActionOf(error);
  return Json(status, {{"error", std::move(json)}});
}

int HttpStatusOf(const absl::Status& error) {
  if (absl::IsNotFound(error)) return 404;
  if (absl::IsInvalidArgument(error)) return 400;
  return ExitStatusFor(error) == kUnknown ? 503 : 502;
}

}  // namespace

bool WebSite::IsKnownHost(const std::string& host) const {
  const std::string lower = absl::AsciiStrToLower(host);
  return std::find(options_.hosts.begin(), options_.hosts.end(), lower) != options_.hosts.end();
}

HttpAnswer WebSite::Ask(const std::string& path) const {
  const size_t slash = path.find('/');
  const auto question = options_.questions.find(path.substr(0, slash));
  if (question == options_.questions.end())
    return Refusal(404, MakeError(Reason::kBadRequest, "there is no such page"));
  const absl::StatusOr<nlohmann::ordered_json> answer =
      question->second(slash == std::string::npos ? "" : path.substr(slash + 1));
  return answer.ok() ? Json(200, *answer) : Refusal(HttpStatusOf(answer.status()), answer.status());
}

HttpAnswer WebSite::Answer(const HttpRequest& request) const {
  HttpAnswer answer;
  const std::string& path = request.path;
  if (!IsKnownHost(request.host)) {
    answer =
        Refusal(421, MakeError(Reason::kBadRequest, "this server does not answer requests for that host name",
                               {{"next", "Open the address that `cairn serve` printed, or start it with --host."}}));
  } else if (request.method != "GET" && request.method != "HEAD") {
    answer = Refusal(405, MakeError(Reason::kBadRequest, "this page is read-only"));
    answer.headers.emplace_back("Allow", "GET, HEAD");
  } else if (const File* file = FileAt(path); file != nullptr) {
    answer = {200, std::string(TypeOf(file->name)), std::string(file->text), {}};
  } else if (!path.starts_with(kQuestions)) {
    answer = Refusal(404, MakeError(Reason::kBadRequest, "there is no such page"));
  } else if (!TokenMatches("Bearer " + options_.token, request.authorization)) {
    answer = Refusal(401, MakeError(Reason::kBadToken, "this is not the token of the page"));
    answer.headers.emplace_back("WWW-Authenticate", "Bearer");
  } else {
    answer = Ask(path.substr(sizeof(kQuestions) - 1));
  }
  answer.headers.insert(answer.headers.end(), {{"Content-Security-Policy", kPolicy},
                                               {"X-Content-Type-Options", "nosniff"},
                                               {"Referrer-Policy", "no-referrer"},
                                               {"Cross-Origin-Resource-Policy", "same-origin"},
                                               {"Cache-Control", "no-store"}});
  if (request.method == "HEAD") answer.body.clear();
  return answer;
}

}  // namespace cairn::cli
