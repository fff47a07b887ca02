#include "server/api/metrics_server.h"

#include <CivetServer.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <future>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace ridgeline::api {
namespace {

struct Page {
  int code;
  const char* content_type;
  std::string body;
};

constexpr char kPlainText[] = "text/plain; charset=utf-8";
constexpr char kExposition[] = "text/plain; version=0.0.4; charset=utf-8";

// The packaged civetweb's threads have 100 KB of stack, of which static TLS (61 KB for OpenBLAS, up to 8 KB for CUDA's runtime)
// and civetweb itself leave some 12 KB. So pages are made on a thread with a stack of the usual size.
Page MakeOnOwnThread(const std::function<Page()>& make_page) {
  try {
    return std::async(std::launch::async, make_page).get();
  } catch (const std::system_error&) {
    return {503, kPlainText, "no thread could be started\n"};
  }
}

// A page for GET and HEAD; other methods are refused.
class PageHandler : public CivetHandler {
 public:
  explicit PageHandler(std::function<Page()> make_page) : make_page_(std::move(make_page)) {}

  bool handleGet(CivetServer*, mg_connection* connection) override {
    return Send(connection, MakeOnOwnThread(make_page_), /*with_body=*/true);
  }
  bool handleHead(CivetServer*, mg_connection* connection) override {
    return Send(connection, MakeOnOwnThread(make_page_), /*with_body=*/false);
  }
  bool handlePost(CivetServer*, mg_connection* connection) override { return Refuse(connection); }
  bool handlePut(CivetServer*, mg_connection* connection) override { return Refuse(connection); }
  bool handleDelete(CivetServer*, mg_connection* connection) override { return Refuse(connection); }
  bool handlePatch(CivetServer*, mg_connection* connection) override { return Refuse(connection); }
  bool handleOptions(CivetServer*, mg_connection* connection) override { return Refuse(connection); }

 private:
  static bool Send(mg_connection* connection, const Page& page, bool with_body) {
    // Not mg_printf, which has a buffer of 8 KB on the stack.
    const std::string response = absl::StrCat("HTTP/1.1 ", page.code, " ", mg_get_response_code_text(connection, page.code),
                                              "\r\nContent-Type: ", page.content_type, "\r\nContent-Length: ", page.body.size(),
                                              "\r\nConnection: close\r\n\r\n", with_body ? page.body : "");
    mg_write(connection, response.data(), response.size());
    return true;
  }

  static bool Refuse(mg_connection* connection) {
    return Send(connection, {405, kPlainText, "only GET and HEAD\n"}, /*with_body=*/true);
  }

  const std::function<Page()> make_page_;
};

Page HealthPage(const engine::Engine& engine) {
  const absl::Status health = engine.health();
  return health.ok() ? Page{200, kPlainText, "ok\n"} : Page{503, kPlainText, absl::StrCat(health.message(), "\n")};
}

Page ReadyPage(const engine::Engine& engine) {
  if (!engine.health().ok()) return HealthPage(engine);
  return engine.load().draining ? Page{503, kPlainText, "draining\n"} : Page{200, kPlainText, "ready\n"};
}

class CivetMetricsServer : public MetricsServer {
 public:
  // Throws CivetException if the address cannot be listened on.
  CivetMetricsServer(const std::string& address, const base::MetricsRegistry& registry, const engine::Engine& engine)
      : metrics_([&registry] {
          return Page{200, kExposition, registry.Serialize()};
        }),
        healthz_([&engine] { return HealthPage(engine); }),
        readyz_([&engine] { return ReadyPage(engine); }),
        other_([] {
          return Page{404, kPlainText, "there are /metrics, /healthz and /readyz\n"};
        }),
        server_(std::vector<std::string>{"listening_ports", address, "num_threads", "3", "request_timeout_ms", "10000"}) {
    server_.addHandler("/metrics$", metrics_);
    server_.addHandler("/healthz$", healthz_);
    server_.addHandler("/readyz$", readyz_);
    server_.addHandler("/", other_);
    address_ = absl::StrCat(address.substr(0, address.rfind(':') + 1), server_.getListeningPorts().front());
  }

  // civetweb looks whether it is to stop when a connection comes, or else every two seconds: so connections come.
  ~CivetMetricsServer() override {
    std::atomic<bool> is_closed = false;
    std::future<void> knocks;
    try {
      knocks = std::async(std::launch::async, [&] {
        for (; !is_closed; absl::SleepFor(absl::Milliseconds(5))) Knock();
      });
    } catch (const std::system_error&) {
      // Then it takes its two seconds.
    }
    server_.close();
    is_closed = true;
  }

  const std::string& address() const override { return address_; }

 private:
  void Knock() const {
    const std::size_t colon = address_.rfind(':');
    std::string host = address_.substr(0, colon);
    if (absl::StartsWith(host, "[")) host = host.substr(1, host.size() - 2);
    char error[100];
    mg_connection* const connection =
        mg_connect_client(host.c_str(), std::atoi(address_.c_str() + colon + 1), /*use_ssl=*/0, error, sizeof(error));
    if (connection != nullptr) mg_close_connection(connection);
  }

  PageHandler metrics_;
  PageHandler healthz_;
  PageHandler readyz_;
  PageHandler other_;
  std::string address_;
  CivetServer server_;  // last: its threads stop before the pages go
};

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> StartMetricsServer(const std::string& address,
                                                                  const base::MetricsRegistry& registry,
                                                                  const engine::Engine& engine) {
  try {
    return std::make_unique<CivetMetricsServer>(address, registry, engine);
  } catch (const CivetException&) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", address));
  }
}

}  // namespace ridgeline::api
