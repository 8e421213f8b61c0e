// Says why the form is back.
document.getElementById("wrong").hidden = location.search !== "?wrong";
