// Blocking, before the first paint: marks that scripts run.
document.documentElement.classList.add("js");
