// Shows the API's schema, and sends the CSRF token with what is tried out from the page.
const element = document.getElementById("api");
SwaggerUIBundle({
  url: element.dataset.schema,
  domNode: element,
  deepLinking: true,
  requestInterceptor: (request) => {
    const token = document.cookie.match(/(?:^|; )csrftoken=(\w+)/);
    if (token && new URL(request.url, location.href).origin === location.origin) {
      request.headers["X-CSRFToken"] = token[1];
    }
    return request;
  },
});
