#include "cli/web/web_site.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/ascii.h"
#include "cli/base/command.h"
#include "common/rpc/token.h"
#include "common/status/reason.h"

namespace cairn::cli {
namespace {

constexpr char kIndex[] =
#include "cli/web/index.html.inc"
    ;
constexpr char kScript[] =
#include "cli/web/app.js.inc"
    ;
constexpr char kStyle[] =
#include "cli/web/style.css.inc"
    ;

constexpr char kQuestions[] = "/api/";

// A Content-Security-Policy: the page may load, run and request nothing from other servers.
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";

HttpAnswer Page(std::string_view type, std::string_view text) {
  return {200, std::string(type), std::string(text), {}};
}

HttpAnswer Json(int status, const nlohmann::ordered_json& json) {
  // JsonText accepts names that are not UTF-8, so they cannot break the page.
  return {status, "application/json", JsonText(json, -1), {}};
}

HttpAnswer Refusal(int status, const absl::Status& error) { return Json(status, {{"error", ErrorToJson(error)}}); }

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
  } else if (path == "/") {
    answer = Page("text/html; charset=utf-8", kIndex);
  } else if (path == "/app.js") {
    answer = Page("text/javascript; charset=utf-8", kScript);
  } else if (path == "/style.css") {
    answer = Page("text/css; charset=utf-8", kStyle);
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
